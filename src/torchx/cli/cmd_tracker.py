"""``torchx tracker``: what runs have tracked."""

import argparse
from collections.abc import Callable

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output
from torchx.cli._parser import CommandParser, Parser
from torchx.cli.cmd_base import SubCommand
from torchx.errors import InvalidInput
from torchx.runner.api import get_configured_trackers, get_tracker_factories
from torchx.tracker.api import TrackerBase, build_trackers

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
examples:
  torchx tracker list jobs --parent-run-id local_cwd://torchx/prep-x1
  torchx tracker list metadata local_cwd://torchx/train-x2
  torchx tracker list artifacts --artifact model local_cwd://torchx/train-x2 --json"""


class NoTrackers(InvalidInput, RuntimeError):
    """No tracker is configured."""


class CmdTracker(SubCommand):
    """Lists jobs, metadata, artifacts and sources; each leaf command sets ``func`` itself."""

    _name: str | None = None

    @property
    def tracker(self) -> TrackerBase:
        """Creates the tracker to query.

        Raises:
            RuntimeError: if none is configured.
        """
        configured = get_configured_trackers()
        factories = get_tracker_factories()
        name = self._name
        if name is not None and name not in configured:
            names = ", ".join(configured) or "none"
            msg = f"tracker `{name}` is not configured; configured are: {names}"
            raise NoTrackers(msg)
        if name is not None:
            configured = {name: configured[name]}
        more = (factories,) if factories else ()
        for tracker in build_trackers(configured, *more):
            _output.log().info("using tracker: %s", tracker)
            return tracker
        msg = (
            "No trackers configured: name one in section `[torchx:tracker]` of .torchxconfig,"
            " or in TORCHX_TRACKERS"
        )
        raise NoTrackers(msg)

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Show what runs have tracked."
        subparser.epilog = EPILOG
        self._parser = subparser
        kind = Parser if isinstance(subparser, CommandParser) else type(subparser)
        actions = subparser.add_subparsers(metavar="ACTION", parser_class=kind)
        text = "list what a tracker knows"
        listing = actions.add_parser("list", help=text, description=f"{text.capitalize()}.")
        kinds = listing.add_subparsers(metavar="KIND", parser_class=kind)
        self._add_jobs(kinds)
        self._leaf(kinds, "metadata", "values of a run", self._list_metadata)
        artifacts = self._leaf(kinds, "artifacts", "artifacts of a run", self._list_artifacts)
        artifacts.add_argument("--artifact", metavar="NAME", help="only the one of this name")
        sources = self._leaf(kinds, "sources", "what a run was made from", self._list_sources)
        sources.add_argument("--artifact", metavar="NAME", help="only those with this artifact")
        lineage = self._leaf(
            kinds,
            "lineage",
            "what a run was made from and what was made from it",
            self._list_lineage,
        )
        lineage.add_argument("--artifact", metavar="NAME", help="only by this artifact")
        which = lineage.add_mutually_exclusive_group()
        which.add_argument("--sources-only", action="store_true", help="no descendants")
        which.add_argument("--descendants-only", action="store_true", help="no sources")

    def _add_jobs(self, kinds: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        jobs = self._leaf(kinds, "jobs", "runs that a tracker knows", self._list_jobs, run=False)
        jobs.add_argument(
            "--parent-run-id",
            "--parent_run_id",
            dest="parent_run_id",
            metavar="ID",
            help="only runs that have this one as a source",
        )

    def _leaf(
        self,
        kinds: "argparse._SubParsersAction[argparse.ArgumentParser]",
        name: str,
        text: str,
        func: Callable[[argparse.Namespace], None],
        *,
        run: bool = True,
    ) -> argparse.ArgumentParser:
        parser = kinds.add_parser(name, help=text, description=f"List {text}.")
        if run:
            parser.add_argument("RUN_ID", help="id of the run, which is the handle of the job")
        parser.add_argument(
            "--tracker", metavar="NAME", help="the tracker to query (default: the first configured)"
        )
        _arguments.add_json(parser)
        parser.set_defaults(func=func)
        return parser

    def run(self, args: argparse.Namespace) -> None:
        """Reached only without an action: each action has its own function."""
        _output.out(self._parser.format_help(), end="")
        raise SystemExit(1)

    def _ask(self, args: argparse.Namespace) -> TrackerBase:
        self._name = args.tracker
        return self.tracker

    def _list_jobs(self, args: argparse.Namespace) -> None:
        run_ids = list(self._ask(args).run_ids(parent_run_id=args.parent_run_id))
        if args.json:
            _output.out_json([{"run_id": run_id} for run_id in run_ids])
            return
        _output.out_table(["JOB ID"], [[run_id] for run_id in run_ids])

    def _list_metadata(self, args: argparse.Namespace) -> None:
        metadata = self._ask(args).metadata(args.RUN_ID)
        if args.json:
            _output.out_json(dict(metadata))
            return
        _output.out_table(["ID", "VALUE"], [[str(k), str(v)] for k, v in metadata.items()])

    def _list_artifacts(self, args: argparse.Namespace) -> None:
        artifacts = [
            artifact
            for artifact in self._ask(args).artifacts(args.RUN_ID).values()
            if args.artifact is None or artifact.name == args.artifact
        ]
        if args.json:
            _output.out_json(
                [{"name": a.name, "path": a.path, "metadata": a.metadata} for a in artifacts]
            )
            return
        rows = [[a.name, a.path, "" if a.metadata is None else str(a.metadata)] for a in artifacts]
        _output.out_table(["ARTIFACT", "PATH", "METADATA"], rows)

    def _list_sources(self, args: argparse.Namespace) -> None:
        sources = list(self._ask(args).sources(args.RUN_ID, args.artifact))
        if args.json:
            _output.out_json(
                [{"run_id": s.source_run_id, "artifact": s.artifact_name} for s in sources]
            )
            return
        rows = [[s.source_run_id, s.artifact_name or ""] for s in sources]
        _output.out_table(["SOURCE", "ARTIFACT"], rows)

    def _list_lineage(self, args: argparse.Namespace) -> None:
        lineage = self._ask(args).lineage(args.RUN_ID)
        links = [
            (relation, link.source_run_id, link.artifact_name)
            for relation, found, left_out in (
                ("source", lineage.sources, args.descendants_only),
                ("descendant", lineage.descendants, args.sources_only),
            )
            if not left_out
            for link in found
            if args.artifact in (None, link.artifact_name)
        ]
        if args.json:
            keys = ("relation", "run_id", "artifact")
            _output.out_json([dict(zip(keys, link, strict=True)) for link in links])
            return
        rows = [[relation, run_id, artifact or ""] for relation, run_id, artifact in links]
        _output.out_table(["RELATION", "RUN ID", "ARTIFACT"], rows)
