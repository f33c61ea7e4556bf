"""`aici bench`: measure this machine.

Comparisons are ratios of variants that run in turn, A B A B, in one process run.
"""

import typer

from aici_cli.bench.abuse.command import abuse
from aici_cli.bench.cluster import cluster
from aici_cli.bench.constraint_cost.command import constraint
from aici_cli.bench.ctrl import ctrl
from aici_cli.bench.engine import engine
from aici_cli.bench.masks import masks
from aici_cli.bench.quality import quality
from aici_cli.bench.replicas import replicas
from aici_cli.bench.rt import rt
from aici_cli.bench.serve import serve
from aici_cli.bench.speculate import speculate

app = typer.Typer(
    help="Measure speed, memory and quality on this machine.", no_args_is_help=True, rich_markup_mode=None
)
app.command()(abuse)
app.command()(cluster)
app.command()(constraint)
app.command()(ctrl)
app.command()(engine)
app.command()(masks)
app.command()(quality)
app.command()(replicas)
app.command()(rt)
app.command()(serve)
app.command()(speculate)
