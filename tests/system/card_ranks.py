"""Stages of the card campaign with several ranks on one card, over NCCL: numbers, failures, overlap, counters, links."""
import json

import nccl_failures
import nccl_parity
from card_stage import stage
from program import ORTHANT, free_port


def rows(c, issue, what, *words, asked="equal to one rank, canaries fail"):
    """Rows of nccl_parity.py; one line for each that is wrong, and one for all."""
    a = nccl_parity.parser_of_rows().parse_args([*words, *(["--device", "cpu", "--backend", "gloo"] if c.rehearsed else [])])
    count, wrong, refused, worst = 0, 0, 0, 0.0
    for row, text, right in nccl_parity.outcomes(a):
        count += 1
        print(f"| {row.name()} | {text} | {right} |", flush=True)
        if right is None:
            refused += 1
        elif not right:
            wrong += 1
            c.tell(issue, f"{what}: {row.name()}", asked, text[:600], False)
        elif not row.canary and row.dtype == "float64":
            worst = max(worst, float(text))
    c.tell(issue, what, asked, f"{count - refused} rows, {wrong} wrong, {refused} refused, largest error in float64 {worst:.1e}", wrong == 0 and count > refused)


def few(c):
    """On a rehearsal a row or two."""
    return ["--only", "tp=2"] if c.rehearsed else ["--all"]


@stage("nccl operations", "29", "every operation, even and uneven, checked and not, by 2, 4 and 8 ranks", 110, 260, timed=True)
def nccl_operations(c):
    c.test_program(29, "every collective in every dtype over NCCL, one rank", "test_comm_cuda", "*")
    for count in (2, 4, 8):
        launcher = [] if c.rehearsed else [nccl_parity.ORTHANT, "launch", "--nproc", str(count), "--ranks-per-device", str(count), "--"]
        c.test_program(29, f"all operations of the comm suites over NCCL, {count} ranks on one card", "test_comm_nccl", "*", launcher=launcher,
                       timeout=80)
        if c.rehearsed:
            return


@stage("nccl parity 2", "27 29", "axes, schedules, ZeRO, tied, branches, bf16 by 2 ranks", 120, 300)
def nccl_parity_2(c):
    rows(c, 29, "2 ranks over NCCL: axes, five schedules, ZeRO 0-3, tied, branches, bf16 through kernels", "--ranks", "2", *few(c))


@stage("nccl parity 4", "29", "every pair of axes by 4 ranks", 120, 300)
def nccl_parity_4(c):
    rows(c, 29, "4 ranks over NCCL: every pair of axes, HSDP", "--ranks", "4", *few(c))


@stage("nccl parity 8", "29", "both 3D meshes by 8 ranks", 90, 240)
def nccl_parity_8(c):
    rows(c, 29, "8 ranks over NCCL: both 3D meshes", "--ranks", "8", *few(c))


@stage("nccl random", "29", "20 random meshes", 150, 400)
def nccl_random(c):
    rows(c, 29, "20 random meshes over NCCL", "--only", "no such row", "--random", "1" if c.rehearsed else "20", asked="0 wrong")


@stage("cp", "29 32", "cp=2 in three ways over NCCL and over Gloo: which of both is wrong, if any", 100, 240)
def cp(c):
    for backend in ("nccl", "gloo"):
        rows(c, 32, f"cp=2 on one card over {backend}: ring, all_to_all, gather, bf16 through kernels", "--context", "--ranks", "2", "--backend", backend,
             *(["--only", "all_to_all"] if c.rehearsed else ["--all"]))


@stage("cp 4", "32", "cp=4, cp=2 with tp and pp", 90, 240)
def cp_4(c):
    rows(c, 32, "cp=4, cp=2 with tp=2 and with pp=2 over NCCL", "--context", "--ranks", "4", *(["--only", "cp=2,tp=2", "--all"] if c.rehearsed else ["--all"]))


def trials(c, words, what, asked):
    a = nccl_failures.parser_of_trials().parse_args([*words, *(["--device", "cpu", "--backend", "gloo"] if c.rehearsed else [])])
    count = wrong = 0
    for right, line in nccl_failures.outcomes(a):
        print(line, flush=True)
        count, wrong = count + 1, wrong + (not right)
        if not right:
            c.tell(29, f"{what}, trial {count}", asked, line[:1500], False)
    c.tell(29, what, asked, f"{count} trials, {wrong} wrong", wrong == 0)


@stage("kills", "29", "SIGKILL and SIGSTOP inside collectives and exchanges of stages", 170, 420)
def kills(c):
    trials(c, ["--trials", "2" if c.rehearsed else "15"], "a rank killed or stopped inside a call over NCCL",
           "named, exit code 3 within the timeout and a grace, nothing left")


@stage("restarts", "29", "a killed job that is started again", 60, 200)
def restarts(c):
    trials(c, ["--trials", "0", "--restarts"], "a job over NCCL, killed and started again under train.deterministic", "equal bits")


def train(c, mesh, backend, *settings):
    words = ["train", "--config", c.config("configs", "llama_tiny.json"), "--mesh", mesh, *c.ranks(2, backend), *c.settings(["train.steps=2", *settings]),
             "--output-dir", c.path(f"{mesh}-{backend}")]
    return c.json(*words)


@stage("counters", "29", "calls and payload bytes per axis", 45, 150)
def counters(c):
    for mesh in ("fsdp=2", "tp=2", "pp=2", "cp=2"):
        gloo, nccl = (train(c, mesh, backend, "parallel.microbatches=2")["measured"]["traffic"] for backend in ("gloo", "nccl"))
        c.tell(29, f"{mesh}: calls and payload bytes over NCCL", "those over Gloo, which equal the closed forms", json.dumps(nccl)[:400], gloo == nccl)


@stage("overlap", "29", "exchanges under products, on streams of their own", 45, 150, timed=True)
def overlap(c):
    model = ("model.hidden_size=1024", "model.intermediate_size=4096", "model.num_hidden_layers=8", "model.num_attention_heads=16",
             "model.num_key_value_heads=16", "precision.compute=bfloat16", "train.global_batch_size=16", "data.sequence_length=128")
    for mesh, more in (("fsdp=2", ("parallel.zero=3",)), ("tp=2", ("parallel.sequence_parallel=true",))):
        words = ["bench", "step", "--config", c.config("configs", "llama_tiny.json"), "--mesh", mesh, *c.ranks(2), "--steps", 2, "--warmup", 2, "--kernels",
                 *c.settings([*model, *more])]
        found = c.json(*words, rehearsed={"kernels": {"exchanges": {"seconds": 0.2, "hidden": 0.4, "on_own_streams": True}}})["kernels"]
        exchanges = found.get("exchanges", {"seconds": 0, "hidden": 0, "on_own_streams": False})
        c.tell(29, f"{mesh}: exchanges on streams of their own, under products", "on their own; printed how much is hidden",
               f"{exchanges['on_own_streams']}, {exchanges['hidden']:.0%} of {exchanges['seconds'] * 1e3:.1f} ms hidden",
               bool(exchanges["on_own_streams"] and exchanges["hidden"] > 0))


@stage("nccl graph", "28 29", "steps with exchanges over NCCL in a CUDA graph against eager ones", 60, 200)
def nccl_graph(c):
    base = ("precision.compute=bfloat16", "train.deterministic=true", "model.hidden_size=128", "model.intermediate_size=256", "optimizer.clip=0.5")
    for mesh, more in (("dp=2", ()), ("fsdp=2", ("parallel.zero=3",)), ("tp=2", ("parallel.sequence_parallel=true",)),
                       ("pp=2", ("parallel.schedule=1f1b", "parallel.microbatches=4")), ("pp=2,dp=2", ("parallel.microbatches=2",)),
                       ("cp=2", ("parallel.context=ring",))):
        hashes = []
        for graph in ("off", "on"):
            count = 4 if "," in mesh else 2
            words = ["train", "--config", c.config("configs", "llama_tiny.json"), "--mesh", mesh, *c.ranks(count), "--output-dir",
                     c.path(f"{mesh}-{graph}"), *c.settings([*base, *more, "train.steps=8", f"train.cuda_graph={graph}"],
                                                            ["train.cuda_graph=auto", "precision.compute=float32", "train.steps=3"])]
            done = c.orthant(*words, "--json", codes=(0, 1, 2, 3, 4, 70))
            hashes.append(json.loads(done.stdout)["weights_hash"] if done.returncode == 0 else done.stderr.strip()[-300:])
        where = "in one graph" if mesh[:2] not in ("pp", "cp") else "between pieces that are graphs"
        c.tell(29, f"{mesh}: steps with exchanges {where} against eager ones, 8 steps", "equal bits", " | ".join(hashes), hashes[0] == hashes[1])


@stage("nccl hosts", "29", "two launchers as two hosts, NCCL between their ranks", 30, 120)
def nccl_hosts(c):
    place = f"127.0.0.1:{free_port()}"
    shared = [] if c.rehearsed else ["--ranks-per-device", "2"]
    program = [ORTHANT, "parity", "--config", c.config("configs", "llama_tiny.json"), "--mesh", "dp=2", "--steps", "1", "--interface", "lo", "--json",
               *c.ranks(2)]
    launchers = [[ORTHANT, "launch", "--nproc", "1", "--nnodes", "2", "--node_rank", str(node), "--rendezvous", place, "--no-token", *shared, "--",
                  *program] for node in (0, 1)]
    results = c.run_together(*launchers, timeout=100)
    codes = [code for code, _, _ in results]
    try:
        found = json.dumps(json.loads(results[0][1])["max_relative_error"])
    except (ValueError, KeyError, TypeError):
        found = f"no document: {results[0][1].strip()[:100]}"
    if codes != [0, 0]:
        found = f"exit codes {codes}, None when not over: {' | '.join(errors.strip()[-150:] for _, _, errors in results)}"
    c.tell(29, "dp=2 over two launchers as two hosts: control over Gloo, exchanges over NCCL", "equal to one rank", found,
           codes == [0, 0] and not found.startswith("no document"))


@stage("links", "29", "bus bandwidth of every operation; doctor over every group", 45, 150, timed=True)
def links(c):
    found = c.json("bench", "comm", "--mesh", "dp=2", *c.ranks(2), "--max-bytes", "64KiB" if c.rehearsed else "8MiB", "--rounds", 2)["rows"]
    largest = max(row["bytes"] for row in found)
    told = ", ".join(f"{row['op']} {row['bus_bytes_per_second'] / 1e9:.3f}" for row in found if row["bytes"] == largest and not row["placed"])
    c.tell(29, f"bench comm: bus bandwidth at {largest >> 10} KiB, 2 ranks, GB/s", "printed for each operation", told, len(told) > 0)
    check = c.json("doctor", "--mesh", "dp=2,tp=2", *c.ranks(4), timeout=120)["check"]
    groups = [group for group in check["groups"] if group["size"] > 1]
    c.tell(29, "doctor --mesh: every group with data, bandwidth, the slowest", "all agree, the slowest named",
           f"{len(groups)} groups, slowest {check.get('slowest')}", bool(groups) and check.get("slowest") is not None)


@stage("calibration", "29", "a calibration with several ranks measures links per axis", 45, 150, timed=True)
def calibration(c):
    words = ["plan", "--calibrate", c.path("card.json"), "--device", c.device, "--rounds", 3, *(() if c.rehearsed else ("--ranks-per-device", 2))]
    card = c.json(*words, timeout=140)
    c.tell(29, "plan --calibrate with two ranks: what links carry, for every axis within a host", "measured over NCCL", json.dumps(card["local"]),
           card["local"].get("bandwidth", 0) > 0 and (c.rehearsed or card["local"].get("name") == "nccl"))
