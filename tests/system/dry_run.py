"""The figures of a printed dry run."""
import re

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = r"([\d.]+) (B|KiB|MiB|GiB|TiB)\b"


def sizes(text):
    """Bytes of every size in a text, in its order."""
    return [float(number) * UNITS[unit] for number, unit in re.findall(SIZE, text)]


def shown(total):
    """A number of bytes in the largest unit it reaches; `-` for none."""
    if total == 0:
        return "-"
    unit = max((name for name in UNITS if UNITS[name] <= total), key=UNITS.get)
    return f"{total / UNITS[unit]:.1f}".removesuffix(".0") + f" {unit}"


class DryRun:
    """Of every pp coordinate, or of any rank where there are no stages."""

    def __init__(self, text):
        self.text = text
        self.mesh, ranks = re.match(r"mesh (\S+): (\d+) rank", text).groups()
        self.ranks = int(ranks)
        total = re.search(r"^total +(\S+) +\S+ +(.*)$", text, re.M)
        self.parameters = total.group(1)
        stages = sorted({int(pp) for pp in re.findall(r"^pp (\d+): a rank keeps", text, re.M)})
        self.together = sizes(total.group(2))  # weights, gradients, optimizer, activations, all of them
        self.stages = [self.stage(rf"pp {pp}: ") for pp in stages] or [self.stage("")]
        self.peaks = [stage["state"] + stage["activations"] for stage in self.stages]
        self.fullest = self.peaks.index(max(self.peaks))  # the coordinate that needs most memory

    def stage(self, prefix):
        def line(words):
            found = re.search(rf"^{prefix}{words}(.*)\.$", self.text, re.M | re.I)
            return sizes(found.group(1)) if found else []

        *state, activations, _ = self.together
        return {"state": sum(line("a rank keeps(?=.* of optimizer state)") or state),
                "activations": (line("a rank (?:keeps|has)(?=.* of activations)") or [activations])[-1],
                "data": sum(line("a step of a rank sends")), "pp": sum(line("over pp it")), "tp": sum(line("over tp it"))}

    def cells(self):
        """Mesh, ranks, parameters, and what the coordinate that needs most memory keeps and sends."""
        return [self.mesh, str(self.ranks), self.parameters, *map(shown, self.stages[self.fullest].values())]
