"""The commands `measure` and `explain`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from ..errors import whole_number
from .app import DONE, DataDir, Json, app, emit


@app.command()
def measure(
    target: Annotated[
        str, Argument(help="A run directory, or MODULE:FACTORY giving (model, loss, data)")
    ],
    measures: Annotated[
        list[str] | None,
        Option(
            "--measure",
            "--measures",
            help="e.g. trace,lambda_max:tolerance=1e-4 or all; may be repeated",
        ),
    ] = None,
    data: Annotated[
        str | None, Option(help="Measure on other data, e.g. xor:d=30,n=1000 or a.npz")
    ] = None,
    data_dir: DataDir = None,
    mode: Annotated[str, Option(help="eval, train or recomputed")] = "eval",
    params: Annotated[
        list[str] | None, Option(help="Name pattern or layer; may be repeated")
    ] = None,
    dtype: Annotated[str | None, Option(help="float64 for higher precision")] = None,
    seed: Annotated[int, Option(help="Seed of probes and start vectors.")] = 0,
    budget: Annotated[float | None, Option(help="Seconds for each measure.")] = None,
    products: Annotated[
        int | None, Option(help="Products with a matrix (or gradients) for each measure.")
    ] = None,
    batch_size: Annotated[
        int | None, Option(help="Examples per batch; matters with --mode train.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure the sharpness of a stored run or of your own model."""
    from ..measures.measuring import Budget, choose
    from ..measures.measuring import measure as take
    from .targets import target_of

    whole_number("seed", seed, least=0)
    chosen, limit = choose(measures or None), Budget(budget, products)
    everything = any("all" in text.split(",") for text in measures or ())
    found = target_of(target, data)
    readings = take(
        found.model, found.loss, found.data, chosen, mode, params or None, seed, limit,
        dtype=dtype, batch_size=batch_size, reference=found.reference,
        preconditioner=found.preconditioner,
        progress=False if as_json else None, skip=everything,
    )  # fmt: skip
    if as_json:
        document = {"target": target, "measures": readings.to_dict(), "skipped": readings.skipped}
        kept = {"status": found.status, "notes": found.notes} if found.status else {}
        emit(document | kept)
        return DONE
    from .console import print_line, print_table

    print_table(readings.rows(), target)
    for line in readings.lines():
        print_line(line)
    for name, reason in readings.skipped.items():
        print_line(f"left out {name}: {reason}")
    for note in found.notes:
        print_line(f"note: {note}")
    return DONE


@app.command()
def explain(
    name: Annotated[str, Argument(help="A measure, e.g. trace; see `flatlab list measures`")],
    as_json: Json = False,
) -> int:
    """Explain a measure: its definition, its invariances, its cost and its limits."""
    from ..measures.explaining import explanation, facts

    if as_json:
        emit(facts(name))
    else:
        from .console import print_line

        print_line(explanation(name))
    return DONE
