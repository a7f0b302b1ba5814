"""Random Hugging Face folders with odd special ids, generation settings, templates and unknown keys, and what an export of them differs in."""
import json
import os
import random

import tokenizers
import torch
import transformers

DECODERS = ("llama", "gpt2", "qwen3", "mistral")
FAMILIES = ("llama", "gpt2", "bert", "roberta", "xlm-roberta", "camembert", "qwen3", "mistral")
CLASSES = {"llama": ("LlamaForCausalLM", "LlamaModel"), "gpt2": ("GPT2LMHeadModel", "GPT2Model"), "bert": ("BertForMaskedLM", "BertModel"),
           "roberta": ("RobertaForMaskedLM", "RobertaModel"), "xlm-roberta": ("XLMRobertaForMaskedLM", "XLMRobertaModel"),
           "camembert": ("CamembertForMaskedLM", "CamembertModel"), "qwen3": ("Qwen3ForCausalLM", "Qwen3Model"),
           "mistral": ("MistralForCausalLM", "MistralModel")}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"


def write(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(value if isinstance(value, str) else json.dumps(value, indent=draw_indent(name)))


def draw_indent(name):
    return len(name) % 4


def read_json(*names):
    with open(os.path.join(*names), encoding="utf-8") as f:
        return json.load(f)


def model_config(draw, family, vocabulary):
    special = draw.sample(range(6, vocabulary), 4)
    config = {"bos_token_id": special[0], "eos_token_id": special[1], "pad_token_id": special[2]}
    layers, heads = draw.randint(1, 2), draw.choice((2, 4))
    if family in ("llama", "qwen3", "mistral"):
        config |= dict(hidden_size=8 * heads, intermediate_size=draw.randint(9, 40), num_hidden_layers=layers, num_attention_heads=heads,
                       num_key_value_heads=draw.choice((1, 2)), max_position_embeddings=64, tie_word_embeddings=draw.random() < 0.5)
        if family == "mistral":
            config["sliding_window"] = draw.choice((None, 3, 100))
        else:
            config["attention_bias"] = draw.random() < 0.3
        if family == "qwen3":
            config["head_dim"] = draw.choice((4, 12))
        config["eos_token_id"] = [special[1], special[3]] if draw.random() < 0.5 else special[1]
    elif family == "gpt2":
        config |= dict(n_embd=6 * heads, n_layer=layers, n_head=heads, n_positions=64, n_inner=draw.choice((None, 31)),
                       tie_word_embeddings=draw.random() < 0.7)
    else:
        config |= dict(hidden_size=6 * heads, intermediate_size=draw.randint(9, 40), num_hidden_layers=layers, num_attention_heads=heads,
                       max_position_embeddings=128 + vocabulary, type_vocab_size=draw.choice((1, 2)))
        if family == "bert":
            config["pad_token_id"] = draw.choice((0, special[2]))
    return {"vocab_size": vocabulary, **config}


def write_tokenizer(draw, folder, vocabulary, config):
    """Words w00, w01, ...; special tokens where the ids of config.json are."""
    words = {f"w{i:02}": i for i in range(vocabulary)}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="w03"))
    made.normalizer, made.pre_tokenizer = tokenizers.normalizers.BertNormalizer(), tokenizers.pre_tokenizers.BertPreTokenizer()
    made.save(os.path.join(folder, "tokenizer.json"))
    eos = config["eos_token_id"]
    eos = eos[0] if isinstance(eos, list) else eos
    names = {"bos_token": f"w{config['bos_token_id']:02}", "eos_token": f"w{eos:02}", "pad_token": f"w{config['pad_token_id']:02}", "unk_token": "w03"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, "own_key": {"ä": [1, None]}, **names}
    if draw.random() < 0.6:
        settings["chat_template"] = TEMPLATE
    else:
        write(folder, "chat_template.jinja", TEMPLATE)
    write(folder, "tokenizer_config.json", settings)
    write(folder, "special_tokens_map.json", names)
    if draw.random() < 0.5:
        write(folder, "added_tokens.json", {f"w{vocabulary - 1}": vocabulary - 1})


def make_config_odd(draw, folder):
    """Keys that nobody knows, and the dtype under its older name, its newer one, or none."""
    config = read_json(folder, "config.json")
    dtype = config.pop("dtype", None) or config.pop("torch_dtype", None)
    name = draw.choice(("dtype", "torch_dtype", None))
    if name:
        config[name] = dtype
    config |= {"own_key": {"deep": [1, 2.5, None, "ü"]}, "_name_or_path": "somebody/something", "transformers_version": "4.31.0.dev0"}
    config["task_specific_params"] = {"text-generation": {"do_sample": True, "max_length": 50}}
    items = list(config.items())
    draw.shuffle(items)
    write(folder, "config.json", dict(items))
    return config


def make_folder(folder, family, seed, bare=None, dtype=None):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    vocabulary = draw.randint(40, 90)
    bare = draw.random() < 0.25 if bare is None else bare
    dtype = dtype or draw.choice(("float32", "float32", "bfloat16", "float16"))
    config = transformers.AutoConfig.for_model(family, **model_config(draw, family, vocabulary))
    if bare and family in DECODERS and family != "gpt2":
        config.tie_word_embeddings = True  # one without a head and without a tied one cannot be trained
    model = getattr(transformers, CLASSES[family][bare])(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.to(DTYPES[dtype]).save_pretrained(folder)
    written = make_config_odd(draw, folder)
    eos = draw.sample(range(6, vocabulary), 2)
    if family in DECODERS or draw.random() < 0.5:
        write(folder, "generation_config.json", {"eos_token_id": draw.choice((eos, eos[0])), "bos_token_id": written["bos_token_id"],
                                                 "pad_token_id": written["pad_token_id"], "max_new_tokens": draw.randint(9, 20),
                                                 "temperature": 0.7, "do_sample": True, "transformers_version": "4.31.0"})
    write_tokenizer(draw, folder, vocabulary, written)
    if draw.random() < 0.5:
        write(folder, draw.choice(("LICENSE", "LICENSE.txt", "USE_POLICY.md")), "Do as you like. Ünder no conditions.\r\n")
    return folder


def differences(original, exported, changed=()):
    """Files and keys that are not as in the original, but for weights and the keys that may have changed."""
    names = {name for folder in (original, exported) for name in os.listdir(folder) if not name.startswith("model")}
    found = []
    for name in sorted(names):
        sides = [os.path.join(folder, name) for folder in (original, exported)]
        if not all(map(os.path.exists, sides)):
            found.append(f"{name} only in {'the original' if os.path.exists(sides[0]) else 'the export'}")
            continue
        texts = []
        for side in sides:
            with open(side, "rb") as f:
                texts.append(f.read())
        if texts[0] == texts[1]:
            continue
        if name != "config.json":
            found.append(f"{name} differs")
            continue
        before, after = map(json.loads, texts)
        found += [f"config.json: {key}" for key in sorted({*before, *after} - set(changed))
                  if key not in before or key not in after or before[key] != after[key]]
    return found


def greedy_text(folder):
    """What transformers makes of the folder: text, or of a model without text its numbers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    batch = tokenizer(["w07 w08 w09 w11", "w30 w06 w21 w13"], return_tensors="pt")
    with torch.no_grad():
        if config.model_type in DECODERS:
            model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
            return tokenizer.batch_decode(model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=False))
        if config.architectures[0].endswith("Model"):
            return transformers.AutoModel.from_pretrained(folder).eval()(batch["input_ids"]).last_hidden_state.tolist()
        model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
        return tokenizer.batch_decode(model(batch["input_ids"]).logits.argmax(-1))
