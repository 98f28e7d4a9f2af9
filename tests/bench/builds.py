"""Two builds of Muster side by side: ours, and the one whose programs are in the folder that --beside names.

  builds.add_option(parser)
  programs = builds.programs(options.beside)      # folders by name: "muster", and "beside" if there is one
  with builds.clusters(programs, nodes=2) as clusters:
      rounds.take({name: functools.partial(measure, cluster) for name, cluster in clusters.items()})
  builds.difference(rounds.values)                # {} without --beside
"""

import contextlib
import pathlib

import machine
from cluster import BIN, Cluster, run


def add_option(parser):
    parser.add_argument("--beside", type=lambda text: pathlib.Path(text).resolve(), metavar="BIN_DIR",
                        help="the programs of another build, measured in turn with these")


def programs(beside):
    return {"muster": BIN, **({"beside": beside} if beside else {})}


def versions(folders):
    return {name: run("muster", "--version", programs=folder).stdout.strip() for name, folder in folders.items()}


@contextlib.contextmanager
def clusters(folders, **options):
    """A cluster of each build. Only one of them has a job at a time, and what idle daemons take is the same for both."""
    with contextlib.ExitStack() as closing:
        made = {}
        for name, folder in folders.items():
            made[name] = Cluster(None, programs=folder, **options)
            closing.callback(made[name].close)
        yield made


def difference(values):
    """What ours took more than the build beside it."""
    return {"difference": machine.difference(values["beside"], values["muster"])} if "beside" in values else {}
