"""Both trainers from named parameters, for the tests that advance them by hand."""

from flatlab.engine import CompiledTrainer


def started(trainer, params):
    """Put named parameters into a trainer; return it."""
    trainer.load({f"params/{name}": value for name, value in params.items()})
    return trainer


def by_engine(arch, params, loss, data, seed, dtype):
    """Return the engine's trainer with these parameters."""
    return started(CompiledTrainer(arch, loss, data, seed, dtype), params)


def by_torch(arch, params, loss, data, seed, dtype):
    """Return the torch trainer with these parameters."""
    from flatlab.training.torch_trainer import TorchTrainer

    return started(TorchTrainer(arch, loss, data, seed, dtype), params)
