"""Every error bar against the truth: random problems, a dense oracle, and the share covered.

The folder is not called `coverage`, because numba would import it in place of the package.

    problems.py   seed → a random problem: network, loss, data, training, options
    oracle.py     a problem → its matrices in float64, formed whole
    wide.py       the same for 40,000 parameters and more, without forming them
    truths.py     a reading → its true value
    climbing.py   the largest rise that this test finds near θ, for measures that search
    judging.py    readings and truths → the share covered, readings that are off
    table.py      the table of docs/measures.md

    pytest tests/error_bars                      # fixed seeds; most are marked slow
    pytest tests/error_bars --fresh 200          # 200 new problems; prints the first seed
    pytest tests/error_bars --fresh 200 --seed 7 # the same ones again
    PYTHONPATH=src:tests python -m error_bars    # writes the table
"""
