"""The options of sbatch: their names, what they take, and where a jobspec has them.

RESOURCES  read into `resources`; what these cannot say goes to SITE, too
SYSTEM     read into `attributes.system`
SITE       carried in `attributes.site.slurm`, as written
REFUSED    cannot be carried; the reader says why
CALL       about the call of sbatch, not about the job
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Place(StrEnum):
    """Where a jobspec has an option."""

    RESOURCES = "resources"
    SYSTEM = "system"
    SITE = "site"
    REFUSED = "refused"
    CALL = "call"


class Takes(StrEnum):
    """What follows an option."""

    VALUE = "value"
    NOTHING = "nothing"
    MAYBE = "maybe"  # a value, attached by "=" only


@dataclass(frozen=True, slots=True)
class Option:
    """One option of sbatch. `why`: why it is refused."""

    name: str
    place: Place
    short: str = ""
    takes: Takes = Takes.VALUE
    why: str = ""


def _options(place: Place, names: str) -> list[Option]:
    """Read "name name/s flag! maybe?" : a short form after the slash, ! takes nothing, ? takes a value after "="."""
    result = []
    for word in names.split():
        takes = {"!": Takes.NOTHING, "?": Takes.MAYBE}.get(word[-1], Takes.VALUE)
        name, _, short = word.rstrip("!?").partition("/")
        result.append(Option(name, place, short, takes))
    return result


_RESOURCES = """
    nodes/N ntasks/n ntasks-per-node ntasks-per-socket ntasks-per-core ntasks-per-gpu cpus-per-task/c cpus-per-gpu
    mem mem-per-cpu mem-per-gpu gpus/G gpus-per-node gpus-per-task gpus-per-socket gres exclusive? constraint/C
    nodelist/w nodefile/F exclude/x tmp mincpus licenses/L
"""
_SYSTEM = """
    time/t begin/b deadline dependency/d job-name/J chdir/D output/o error/e input/i export export-file array/a
    hold/H! nice? comment requeue! no-requeue! partition/p time-min switches prefer contiguous!
"""
_SITE = """
    qos/q account/A reservation wckey mail-type mail-user signal open-mode
    distribution/m sockets-per-node cores-per-socket threads-per-core extra-node-info/B core-spec/S thread-spec
    gpu-bind gpu-freq gres-flags cluster-constraint overcommit/O! oversubscribe/s! spread-job!
    use-min-nodes! no-kill/k? profile propagate? cpu-freq delay-boot mcs-label container acctg-freq bb bbf
    hint mem-bind kill-on-invalid-dep wait-all-nodes ntasks-per-board thread-per-core tres-per-task get-user-env?
"""
_CALL = "parsable! wait/W! quiet/Q! verbose/v! test-only! wrap ignore-pbs! help/h! version/V! usage! clusters/M"
WHY_NOT = {
    "uid": "the site decides which account a job runs as",
    "gid": "the site decides which account a job runs as",
    "priority": "only operators of a site set it; use --nice",
    "reboot": "a job cannot ask a site to reboot nodes",
    "power": "a job cannot set a site's power management",
}
_REFUSED = [Option(name, Place.REFUSED, "", Takes.VALUE, why) for name, why in WHY_NOT.items()]
_NOTHING = {"reboot": Takes.NOTHING}

OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        option.name: option
        for option in (
            *_options(Place.RESOURCES, _RESOURCES),
            *_options(Place.SYSTEM, _SYSTEM),
            *_options(Place.SITE, _SITE),
            *_options(Place.CALL, _CALL),
            *(Option(o.name, o.place, o.short, _NOTHING.get(o.name, o.takes), o.why) for o in _REFUSED),
        )
    }
)
SHORT = MappingProxyType({option.short: option for option in OPTIONS.values() if option.short})
# beginnings that getopt completes: `--tasks` was an option once, of which sbatch 22.05 has this one left
ALIASES = MappingProxyType({"cluster": "clusters", "tasks": "ntasks-per-node", "tasks-per-node": "ntasks-per-node"})
INHERITED = ("job-name", "comment", "mem", "time")  # by the later components of a heterogeneous job
# variables that stand for options, weaker than the command line and stronger than the script
VARIABLES = {
    **{
        f"SBATCH_{name.upper().replace('-', '_')}": name
        for name in (
            *("account", "constraint", "container", "distribution", "exclusive", "export", "gpus", "gpus-per-node"),
            *("gpus-per-task", "gres", "hint", "job-name", "mem-per-cpu", "mem-per-gpu", "no-requeue", "open-mode"),
            *("partition", "profile", "qos", "requeue", "reservation", "signal", "spread-job", "thread-spec"),
            *(
                "use-min-nodes",
                "wckey",
                "core-spec",
                "cpus-per-gpu",
                "delay-boot",
                "gpu-bind",
                "gpu-freq",
            ),
        )
    },
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CLUSTERS": "clusters",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_OVERCOMMIT": "overcommit",
    "SBATCH_TIMELIMIT": "time",
}


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """What one call of sbatch asks for: options by name, one mapping for every component, and a script.

    An option that takes no value has the value "". `environment` are the variables that `export` names.
    `notes` tell in words what is carried in another form, or not at all.
    """

    components: tuple[Mapping[str, str], ...]
    script: str = ""
    name: str = ""  # of the script's file
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    clusters: str = ""  # of which one is to be chosen, divided by commas; empty: of any

    @property
    def options(self) -> Mapping[str, str]:
        """The options of the only component, or the first."""
        return self.components[0]

    def argv(self) -> list[str]:
        """Return the words after `sbatch`, components divided by `:`."""
        words: list[str] = []
        for k, options in enumerate(self.components):
            words += [":"] * bool(k) + [_word(name, value) for name, value in options.items()]
        return words

    def directives(self) -> str:
        """Return the options as lines of a script."""
        parts = [
            "".join(f"#SBATCH {_quoted(word)}\n" for word in GivenOptions((options,)).argv())
            for options in self.components
        ]
        return "#SBATCH hetjob\n".join(parts)


def _word(name: str, value: str) -> str:
    takes = OPTIONS[name].takes if name in OPTIONS else Takes.MAYBE
    return f"--{name}" if not value and takes is not Takes.VALUE else f"--{name}={value}"


def _quoted(word: str) -> str:
    plain = word.replace("=", "").replace("-", "").isalnum()
    return word if plain else "'" + word.replace("'", "'\\''") + "'"
