"""Stages of the card campaign that time steps and kernels beside PyTorch's programs, in one run."""
import concurrent.futures
import json
import math

from card_stage import stage

TINY_BERT = ("model.primary.hidden_size=32", "model.primary.num_hidden_layers=1", "model.primary.num_attention_heads=2",
             "model.primary.intermediate_size=64", "model.primary.vocab_size=97", "model.secondary.hidden_size=32", "model.secondary.num_hidden_layers=1",
             "model.secondary.num_attention_heads=2", "model.secondary.intermediate_size=64", "model.secondary.vocab_size=97",
             "train.global_batch_size=4", "data.sequence_length=16", "precision.compute=float32", "train.product_plans=heuristic")
TINY_LLAMA = ("model.hidden_size=32", "model.num_hidden_layers=1", "model.num_attention_heads=2", "model.num_key_value_heads=2",
              "model.intermediate_size=64", "model.vocab_size=97", "data.sequence_length=16", "precision.compute=float32",
              "precision.master=float32", "train.product_plans=heuristic")
TINY_GPT2 = ("model.n_embd=32", "model.n_layer=1", "model.n_head=2", "model.vocab_size=97", "data.sequence_length=16", "precision.compute=float32",
             "train.product_plans=heuristic")
MEASURED = {"trimodal b8 s128": 5.9, "trimodal b32 s128": 12.1, "trimodal b32 s512": 45.8, "trimodal b256 s128": 77.4, "gpt2-medium": 44.8,
            "Llama 1.5B": 255.5}  # ms, docs/measured.md
TWO_LAYERS = ("model.primary.num_hidden_layers=2", "model.secondary.num_hidden_layers=2")
UNPADDED_STEPS = 300  # each shape is recorded when it comes for the second time
KERNELS = {"gaps": 0.02, "shares": {"products": 0.6}, "waits": {}, "exchanges": {"seconds": 0.1, "hidden": 0.5, "on_own_streams": True}}


def step(c, config, settings, tiny, steps=30, words=(), kernels=False):
    """What `bench step` answers. Kernels are counted in a run of their own on a card, never on a CPU."""
    count = 2 if c.rehearsed else steps
    document = c.json("bench", "step", "--config", c.config(*config), "--device", c.device, "--steps", count, "--warmup", 1 if c.rehearsed else 4, *words,
                      *(["--kernels"] if kernels and not c.rehearsed else []), *c.settings(settings, tiny))
    return {"kernels": KERNELS, "reserved_bytes": {"half": 1, "end": 1}, "graphs": {"recorded": 1, "played": 1}, **document} if c.rehearsed else document


def milliseconds(documents):
    return max(document["median_seconds"] for document in documents) * 1e3


def not_slower(c, name, found):
    """Than another run found, on such a card on another day: 5% are the days'."""
    c.tell(30, f"{name}: not slower than docs/measured.md has it ({MEASURED[name]} ms)", "at most 1.05 times", f"{found / MEASURED[name]:.3f} times",
           found <= 1.05 * MEASURED[name])


def gib(documents):
    return max(document["peak_memory_bytes_per_rank"] for document in documents) / 2**30


def trimodal(c, batch, sequence, limit, strongest, eager_limit=None):
    """Ours before and after the peer; the larger median counts."""
    settings = (f"train.global_batch_size={batch}", f"data.sequence_length={sequence}", "train.product_plans=measured")
    config, name = ("bench", "trimodal_bert.json"), f"trimodal b{batch} s{sequence}"
    ours = [step(c, config, settings, TINY_BERT)]
    theirs = c.peer("h200_trimodal_graph.py", "compile", f"{batch}x{sequence}", rehearsed=[{"ms": strongest, "mem_gb": 5}])
    ours.append(step(c, config, settings, TINY_BERT))
    c.at_most(28, f"{name}, whole step one graph", limit, milliseconds(ours), "ms")
    c.tell(28, f"{name}, memory", "", f"{gib(ours):.2f} GiB")
    not_slower(c, name, milliseconds(ours))
    if theirs:
        found = min(t["ms"] for t in theirs)
        c.tell(28, f"{name}, beside torch.compile in one graph ({found:.1f} ms, {theirs[0]['mem_gb']} GiB)", "less than 1 times", f"{milliseconds(ours) / found:.2f} times",
               milliseconds(ours) < found)
    eager = milliseconds([step(c, config, (*settings, "train.cuda_graph=off"), TINY_BERT)])
    if eager_limit:
        c.at_most(27, f"{name}, kernel by kernel", eager_limit, eager, "ms")
    else:
        c.tell(27, f"{name}, kernel by kernel", "", f"{eager:.2f} ms")


COMPILED_PEERS = (*(("h200_trimodal_graph.py", "compile", shape) for shape in ("8x128", "32x128", "32x512", "256x128")), ("h200_gpt2_hf.py",),
                  ("h200_llama_hf.py", "compile"))


@stage("compiled peers", "27 28", "nothing by itself: torch.compile keeps what it makes, so that timed runs of PyTorch's programs begin sooner", 100, 240)
def compiled_peers(c):
    with concurrent.futures.ThreadPoolExecutor(len(COMPILED_PEERS)) as pool:
        found = list(pool.map(lambda words: c.peer(*words, rehearsed=[{}]), COMPILED_PEERS))
    c.tell("", "programs of PyTorch that ran and were compiled", "", f"{sum(map(bool, found))} of {len(found)}")


@stage("trimodal b8", "27 28", "a step beside torch.compile in one graph", 75, 240, timed=True)
def trimodal_b8(c):
    trimodal(c, 8, 128, 6.5, 10.2)


@stage("trimodal b32", "27 28", "a step beside torch.compile in one graph", 75, 240, timed=True)
def trimodal_b32(c):
    trimodal(c, 32, 128, 12.5, 18.7)


@stage("trimodal b32 s512", "27 28", "a step beside torch.compile in one graph", 85, 240, timed=True)
def trimodal_b32_s512(c):
    trimodal(c, 32, 512, 48, 62.8, eager_limit=55)


@stage("trimodal b256", "27 28", "a step beside torch.compile in one graph", 95, 240, timed=True)
def trimodal_b256(c):
    trimodal(c, 256, 128, 80, 100.9, eager_limit=90)


@stage("gpt2", "27", "GPT-2 medium with dropout beside transformers, compiled", 90, 240, timed=True)
def gpt2(c):
    settings, config = ("train.product_plans=measured",), ("bench", "gpt2_medium.json")
    ours = [step(c, config, settings, TINY_GPT2)]
    theirs = c.peer("h200_gpt2_hf.py", rehearsed=[{"compiled": True, "ms": 61.9, "device_gib": 14.6}])
    ours.append(step(c, config, settings, TINY_GPT2))
    eager = milliseconds([step(c, config, (*settings, "train.cuda_graph=off"), TINY_GPT2)])
    compiled = [t for t in theirs if t["compiled"]] or [{"ms": 61.9, "device_gib": 14.6}]
    beside = f"transformers compiled ({compiled[0]['ms']:.1f} ms, {compiled[0]['device_gib']:.1f} GiB{'' if theirs else ', of another run'})"
    c.at_most(27, f"gpt2-medium b8 s1024 beside {beside}: time, kernel by kernel", 0.75, eager / compiled[0]["ms"], "times")
    c.at_most(27, "gpt2-medium b8 s1024: time, one graph", 0.75, milliseconds(ours) / compiled[0]["ms"], "times")
    not_slower(c, "gpt2-medium", milliseconds(ours))
    c.at_most(27, "gpt2-medium b8 s1024: memory", 1, gib(ours) / compiled[0]["device_gib"], "times")


@stage("llama", "28 30", "Llama 1.5B beside torch.compile; bf16_remainder; float8", 140, 300, timed=True)
def llama(c):
    """Ours by itself first: on a fresh machine torch.compile may need more than the stage has."""
    config, plans = ("bench", "llama_1b5.json"), "train.product_plans=measured"
    ours = [step(c, config, (plans,), TINY_LLAMA, steps=10)]
    c.at_most(28, "Llama 1.5B: memory", 42, gib(ours), "GiB")
    remainder = [step(c, config, (plans, "precision.master=bf16_remainder"), TINY_LLAMA, steps=10)]
    c.at_least(28, "Llama 1.5B, bf16_remainder: speed of float32 master's", 0.98, milliseconds(ours) / milliseconds(remainder), "times")
    eight = c.orthant("train", "--config", c.config(*config), "--device", c.device, "--dry-run", "--set", "precision.compute=float8", codes=(0, 2))
    if eight.returncode != 0:
        c.tell(28, "Llama 1.5B, float8 beside our bf16: speed", "at least 1.15 times", f"refused: {eight.stderr.strip()[:200]}", False)
    else:
        float8 = [step(c, config, (plans, "precision.compute=float8"), (), steps=10)]
        c.at_least(28, "Llama 1.5B, float8 beside our bf16: speed", 1.15, milliseconds(ours) / milliseconds(float8), "times")
        curves = [document["losses"] for document in (ours[0], float8[0])]
        c.tell(28, "Llama 1.5B, float8: losses of the first steps beside bf16's", "", "; ".join(f"{a:.4f} {b:.4f}" for a, b in zip(*curves)))
    theirs = c.peer("h200_llama_hf.py", "compile", rehearsed=[{"ms": 352.3, "mem_gb": 49}])
    ours.append(step(c, config, (plans,), TINY_LLAMA, steps=10))
    their_ms, their_gib = (theirs[0]["ms"], theirs[0]["mem_gb"]) if theirs else (352.3, 49.0)
    c.at_least(28, f"Llama 1.5B b4 s4096 beside torch.compile ({their_ms:.1f} ms, {their_gib} GiB): speed", 1.3, their_ms / milliseconds(ours), "times")
    c.at_most(28, "Llama 1.5B, bf16_remainder: memory", 0.8, gib(remainder) / their_gib, "times")
    not_slower(c, "Llama 1.5B", milliseconds(ours))


GAPS = (("trimodal b8 s128", "trimodal_bert.json", ("train.global_batch_size=8",), TINY_BERT, 0.08),
        ("trimodal b32 s128", "trimodal_bert.json", ("train.global_batch_size=32",), TINY_BERT, 0.05),
        ("trimodal b32 s512", "trimodal_bert.json", ("train.global_batch_size=32", "data.sequence_length=512"), TINY_BERT, 0.03),
        ("trimodal b256 s128", "trimodal_bert.json", ("train.global_batch_size=256",), TINY_BERT, 0.03),
        ("gpt2-medium", "gpt2_medium.json", (), TINY_GPT2, 0.03), ("Llama 1.5B", "llama_1b5.json", (), TINY_LLAMA, 0.03))


@stage("gaps", "28", "gaps between kernels, waits of the host, shares, reserved memory of the graph", 130, 300, timed=True)
def gaps(c):
    for name, config, settings, tiny, limit in GAPS:
        settings = (*settings, "train.product_plans=measured")
        found = step(c, ("bench", config), settings, tiny, steps=10, kernels=True)
        kernels = found["kernels"]
        c.at_most(28, f"{name}: gaps of a step", limit, kernels["gaps"], "share")
        shares = ", ".join(f"{kind} {share:.1%}" for kind, share in kernels["shares"].items())
        c.tell(28, f"{name}: model TFLOP/s, MFU, shares", "", f"{found.get('model_tflops', 0):.0f}, {found.get('mfu', 0):.0%}; {shares}")
        c.tell(28, f"{name}: calls that make the host wait inside of a step", "none", kernels["waits"] or "none", not kernels["waits"])
        if "b8" in name or "gpt2" in name:
            eager = step(c, ("bench", config), (*settings, "train.cuda_graph=off"), tiny, steps=10)
            ratio = found["reserved_bytes"]["end"] / eager["reserved_bytes"]["end"]
            c.at_most(28, f"{name}: reserved bytes with the graph beside without", 1.05, ratio, "times")


def kernel_rows():
    rows = [{"kernel": "copy", "median_seconds": 2.6e-4, "bytes": 2**30, "share_of_copy": 1.0},
            {"kernel": "layer_norm forward", "median_seconds": 3e-5, "bytes": 2**26, "share_of_copy": 0.8}]
    for way in ("forward", "backward"):
        for tail in ("one call", "blocks of a ring of 4 ranks"):
            rows.append({"kernel": f"attention of 32768 tokens {way}, {tail}", "median_seconds": 1e-2})
    for size in ("8 x 128", "32 x 128", "256 x 128", "32 x 512"):
        for way in ("forward", "backward", "forward, cuDNN's own", "backward, cuDNN's own"):
            rows.append({"kernel": f"attention + dropout of {size} {way}", "median_seconds": 1e-4})
    rows.append({"kernel": "8 experts x 4,096 rows, 2048 x 4096: forward, library", "median_seconds": 7.5e-4, "tflops": 733})
    return {"rows": rows}


CUDNN_IN_A_GRAPH = {"8 x 128": 14 + 19, "32 x 128": 24 + 44, "256 x 128": 105 + 313, "32 x 512": 167 + 298}  # us: starts cost nothing there


@stage("bench kernels", "27 32", "kernels beside a copy, attention with dropout beside cuDNN's", 40, 120, timed=True)
def bench_kernels(c):
    rows = {row["kernel"]: row for row in c.json("bench", "kernels", "--rounds", 9, rehearsed=kernel_rows())["rows"]}
    for name, row in rows.items():
        if "share_of_copy" in row and name != "copy":
            c.at_least(27, f"{name}: of a copy's bandwidth", 0.8, row["share_of_copy"], "share")
    for size, in_graph in CUDNN_IN_A_GRAPH.items():
        name = f"attention + dropout of {size}"
        ours, theirs = (sum(rows[f"{name} {way}{tail}"]["median_seconds"] for way in ("forward", "backward")) for tail in ("", ", cuDNN's own"))
        c.at_most(27, f"{name}, forward + backward beside cuDNN's own", 1.1, ours / min(theirs, in_graph * 1e-6), "times")
    ring, whole = (sum(row["median_seconds"] for name, row in rows.items() if "32768 tokens" in name and name.endswith(tail))
                   for tail in ("blocks of a ring of 4 ranks", "one call"))
    c.at_most(32, f"attention of 32,768 tokens, forward + backward, by the blocks of a ring beside one call ({whole * 1e3:.2f} ms)", 1.1, ring / whole, "times")
    for name, row in rows.items():
        if "tflops" in row:
            c.tell(33, name, "", f"{row['median_seconds'] * 1e6:.0f} us, {row['tflops']:.0f} TFLOP/s")


MIXTRAL = ("model.kind=mixtral", "model.hidden_size=2048", "model.intermediate_size=4096", "model.num_hidden_layers=12", "model.num_attention_heads=32",
           "model.num_key_value_heads=2", "model.vocab_size=8192", "model.max_position_embeddings=2048", "model.num_local_experts=8",
           "model.num_experts_per_tok=2", "data.sequence_length=2048", "train.global_batch_size=4", "precision.compute=bfloat16")
TINY_MIXTRAL = (*TINY_LLAMA[:-3], "precision.compute=float32", "precision.master=float32")
MIXTRAL_PEER = ("--device", "cuda", "--dtype", "bfloat16", "--rows", 4, "--sequence", 2048, "--hidden", 2048, "--inner", 4096, "--layers", 12, "--steps", 8)


@stage("experts", "33", "a Mixtral-shaped step beside transformers, both its ways of experts", 120, 300, timed=True)
def experts(c):
    config = ("configs", "mixtral_47m.json")
    ours = [step(c, config, MIXTRAL, TINY_MIXTRAL, steps=10)]
    theirs = [t for way in ("eager", "grouped_mm")
              for t in c.peer("moe_step.py", *MIXTRAL_PEER, "--experts", way, rehearsed=[{"experts": way, "step_ms": {"median": 321}, "device_mib": 54067}])]
    ours.append(step(c, config, MIXTRAL, TINY_MIXTRAL, steps=10))
    remainder = [step(c, config, (*MIXTRAL, "precision.master=bf16_remainder"), TINY_MIXTRAL, steps=10)]
    fastest = min(theirs, key=lambda t: t["step_ms"]["median"]) if theirs else {"experts": "eager, of another run", "step_ms": {"median": 321}, "device_mib": 54067}
    their_gib = fastest["device_mib"] / 1024
    beside = f"transformers ({fastest['experts']}: {fastest['step_ms']['median']:.0f} ms, {their_gib:.1f} GiB)"
    c.at_most(33, f"8 experts, 12 layers, b4 s2048 beside {beside}: time", 0.45, milliseconds(ours) / fastest["step_ms"]["median"], "times")
    c.tell(33, "8 experts: steps played back as a graph", "", f"{ours[0]['graphs']['played']}, {ours[0]['graphs']['recorded']} graphs")
    c.at_most(33, "8 experts: memory", 0.95, gib(ours) / their_gib, "times")
    c.at_most(33, "8 experts, bf16_remainder: memory", 0.87, gib(remainder) / their_gib, "times")
    kernels = step(c, config, MIXTRAL, TINY_MIXTRAL, steps=5, kernels=True)["kernels"]
    shares = ", ".join(f"{kind} {share:.1%}" for kind, share in kernels["shares"].items())
    c.tell(33, "8 experts: gaps and shares of a step", "", f"gaps {kernels['gaps']:.1%}; {shares}")
    c.tell(33, "8 experts: calls that make the host wait inside of a step", "none", kernels["waits"] or "none", not kernels["waits"])


def mean_share(lengths):
    return sum(lengths) / len(lengths) / max(lengths)


@stage("padding", "32", "a batch of texts whose mean length is 40% of the longest, beside the padded step", 90, 240, timed=True)
def padding(c):
    """Texts by a law whose mean is 0.4 of the longest, as tables have them."""
    longest, rows = (16, 32) if c.rehearsed else (512, 2048)
    lengths = [max(2, round(longest * (i + 0.5) / rows * 0.8 * (0.5 + 1.5 * ((i * 7919) % rows) / rows) * 0.8)) for i in range(rows)]
    lengths = [min(length, longest) for length in lengths]
    lengths[0] = longest
    shrink = 0.4 / mean_share(lengths)
    lengths = [longest if length == longest else max(2, math.floor(length * shrink)) for length in lengths]
    with open(c.path("table.csv"), "w") as f:
        f.write("text,note,number,label\n")
        for i, length in enumerate(lengths):
            text = " ".join(f"w{(i * 31 + j * 17) % 90}" for j in range(length - 2))
            f.write(f"{text},{text},{i % 7},{'ham' if i % 2 else 'spam'}\n")
    with open(c.path("vocab.txt"), "w") as f:
        f.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(90))]) + "\n")
    data = ("data.kind=trimodal", f"data.path={c.path('table.csv')}", f"data.tokenizer={c.path('vocab.txt')}", "data.primary_text=text", "data.secondary_text=note",
            'data.tabular=["number"]', "data.label=label", f"data.sequence_length={longest}", "train.global_batch_size=32", "model.tabular.input_dim=1")
    tiny = [setting for setting in TINY_BERT if "sequence_length" not in setting]
    asked = ("train", "--config", c.config("bench", "trimodal_bert.json"), "--device", c.device, "--dry-run", *c.settings((*data, "data.padding=none"), tiny))
    unpadded = "none" if c.orthant(*asked, codes=(0, 2)).returncode == 0 else "longest"
    ours = {way: step(c, ("bench", "trimodal_bert.json"), (*data, f"data.padding={way}"), tiny, steps=steps)
            for way, steps in ((unpadded, UNPADDED_STEPS), ("full", 60))}
    c.at_most(32, f"texts of a mean length of {mean_share(lengths):.0%} of the longest, data.padding={unpadded}, beside full: time", 0.55,
              ours[unpadded]["median_seconds"] / ours["full"]["median_seconds"], "times")
    graphs = ours[unpadded]["graphs"]
    c.tell(32, "steps of changing lengths that were played back as a graph", "at least 95% share", f"{graphs['played']} of {UNPADDED_STEPS + 4}, {graphs['recorded']} graphs",
           graphs["played"] >= 0.95 * (UNPADDED_STEPS + 4) if not c.rehearsed else None)
    for way in ("none", "full"):
        with open(c.config("bench", "trimodal_bert.json")) as f:
            document = json.load(f)
        document["data"] = {"kind": "trimodal", "path": c.path("table.csv"), "tokenizer": c.path("vocab.txt"), "primary_text": "text",
                            "secondary_text": "note", "tabular": ["number"], "label": "label", "sequence_length": longest, "padding": way}
        with open(c.path(f"{way}.json"), "w") as f:
            json.dump(document, f)
    found = c.json("parity", "--config", c.path("none.json"), "--against", c.path("full.json"), "--device", c.device, "--dtype", "bfloat16", "--steps", 2,
                   *c.settings(("train.global_batch_size=32", "model.tabular.input_dim=1", *TWO_LAYERS), [setting for setting in tiny if "precision" not in setting]),
                   codes=(0, 1))
    c.tell(32, "two steps of texts without padding beside padded ones in bfloat16, dropout included", f"within {found['tolerance']:.0e}",
           str(found["max_relative_error"]), found["pass"])
