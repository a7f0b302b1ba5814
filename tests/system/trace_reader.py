"""An independent reader of traces in Chrome's Trace Event Format ("JSON Object Format"), which Perfetto opens: checks what a reader relies on.

Phases: M metadata, X a slice of a row (pid, tid) with ts and dur in microseconds, b and e the ends of an asynchronous span by (pid, cat, id), s and f
the ends of a flow by (cat, name, id), C a counter. Slices of a row lie inside one another or apart; a flow's ends lie in slices."""
import collections
import json


class Trace:
    def __init__(self, path):
        with open(path) as file:
            document = json.load(file)
        self.events = document["traceEvents"]
        by_phase = collections.defaultdict(list)
        for event in self.events:
            by_phase[event["ph"]].append(event)
        unknown = set(by_phase) - set("MXbesfC")
        assert not unknown, f"phases {unknown}"
        self.slices, self.starts, self.finishes, self.counters = by_phase["X"], by_phase["s"], by_phase["f"], by_phase["C"]
        self.begins, self.ends, self.metadata = by_phase["b"], by_phase["e"], by_phase["M"]
        self.rows = collections.defaultdict(list)
        for event in self.slices:
            self.rows[event["pid"], event["tid"]].append(event)

    def processes(self):
        return {event["pid"]: event["args"]["name"] for event in self.metadata if event["name"] == "process_name"}

    def problems(self):
        """Everything that breaks the format's rules, in words."""
        found = []
        for row, slices in self.rows.items():
            times = [event["ts"] for event in slices]
            if times != sorted(times):
                found.append(f"row {row}: times are not monotonic")
            found += [f"row {row}: negative duration of {event['name']}" for event in slices if event["dur"] < 0]
            open_ends = []
            for event in slices:
                end = event["ts"] + event["dur"]
                while open_ends and open_ends[-1][0] <= event["ts"] + 0.0005:
                    open_ends.pop()
                if open_ends and end > open_ends[-1][0] + 0.0015:  # times have three decimals
                    found.append(f"row {row}: {event['name']} at {event['ts']} ends behind {open_ends[-1][1]}")
                open_ends.append((end, event["name"]))
        for name, some, others in (("flow", self.starts, self.finishes), ("span", self.begins, self.ends)):
            keys = [[(event["cat"], event["id"]) for event in part] for part in (some, others)]
            if sorted(keys[0]) != sorted(keys[1]):
                found.append(f"{name}s do not match one to one")
            if len(set(keys[0])) != len(keys[0]):
                found.append(f"two {name}s of one id")
        for event in self.starts + self.finishes:
            inside = any(one["ts"] - 0.0015 <= event["ts"] <= one["ts"] + one["dur"] + 0.0015 for one in self.rows[event["pid"], event["tid"]])
            if not inside:
                found.append(f"flow {event['id']} ends in no slice")
        return found

    def flows(self):
        finishes = {event["id"]: event for event in self.finishes}
        return [(event, finishes[event["id"]]) for event in self.starts]

    def own_times(self, row):
        """Per slice of a row the microseconds that no slice inside of it takes."""
        slices, own, around = self.rows[row], [], []
        for event in slices:
            while around and slices[around[-1]]["ts"] + slices[around[-1]]["dur"] < event["ts"] + event["dur"] - 0.0015:
                around.pop()
            while around and event["dur"] > 0 and slices[around[-1]]["ts"] + slices[around[-1]]["dur"] <= event["ts"] + 0.0005:
                around.pop()
            if around:
                own[around[-1]] -= event["dur"]
            around.append(len(own))
            own.append(event["dur"])
        return list(zip(slices, own))

    def busy_seconds(self, pid):
        """In operations and updates, on all rows of a process."""
        microseconds = 0
        for row in self.rows:
            if row[0] == pid:
                microseconds += sum(own for event, own in self.own_times(row)
                                    if event["cat"] == "operation" or (event["cat"], event["name"]) == ("phase", "update"))
        return microseconds * 1e-6
