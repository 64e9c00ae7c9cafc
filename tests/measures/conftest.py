import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Threads cost more than they give on problems of a hundred parameters."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
