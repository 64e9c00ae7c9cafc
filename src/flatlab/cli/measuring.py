"""The commands `measure` and `explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from .app import DONE, Json, app, emit


@app.command()
def measure(
    target: Annotated[
        str, typer.Argument(help="A run directory, or MODULE:FACTORY giving (model, loss, data)")
    ],
    measures: Annotated[
        list[str] | None,
        typer.Option(help="e.g. trace,lambda_max:tolerance=1e-4 or all; may be repeated"),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Measure on other data, e.g. xor:d=30,n=1000 or a.npz")
    ] = None,
    mode: Annotated[str, typer.Option(help="eval, train or recomputed")] = "eval",
    params: Annotated[
        list[str] | None, typer.Option(help="Name pattern or layer; may be repeated")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float64 for higher precision")] = None,
    seed: Annotated[int, typer.Option(help="Seed of probes and start vectors.")] = 0,
    budget: Annotated[float | None, typer.Option(help="Seconds for each measure.")] = None,
    products: Annotated[
        int | None, typer.Option(help="Products with a matrix (or gradients) for each measure.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Examples per batch; matters with --mode train.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure the sharpness of a stored run or of your own model."""
    from ..measures.measuring import Budget, choose
    from ..measures.measuring import measure as take
    from .targets import target_of

    chosen, limit = choose(measures or None), Budget(budget, products)
    everything = any("all" in text.split(",") for text in measures or ())
    found = target_of(target, data)
    readings = take(
        found.model, found.loss, found.data, chosen, mode, params or None, seed, limit,
        dtype=dtype, batch_size=batch_size, reference=found.reference,
        progress=False if as_json else None, skip=everything,
    )  # fmt: skip
    if as_json:
        emit({"target": target, "measures": readings.to_dict(), "skipped": readings.skipped})
        return DONE
    from .console import print_line, print_table

    print_table(readings.rows(), target)
    print_line(readings.footnote())
    for name, reason in readings.skipped.items():
        print_line(f"left out {name}: {reason}")
    return DONE


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="A measure, e.g. trace; see `flatlab list measures`")],
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
