"""Random small decoders of every family, as Hugging Face folders, and what transformers answers with them: greedily, in float64 throughout, from
whole passes or with its cache."""
import random

import torch
import transformers

from test_hugging_face import GPT2S, LLAMA, LLAMAS, all_in_float64, random_family, randomize

DECODERS = ("llama", "gpt2", "qwen3", "mistral", "mixtral", "qwen3_moe", "qwen2_moe")
POSITIONS = 64  # prompt and answer together have no more, where a model's positions end


def fits_two_ranks(config):
    """Whether tp=2 can share the heads."""
    heads, kv_heads = config.num_attention_heads, getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return heads % 2 == 0 and (kv_heads == 1 or kv_heads % 2 == 0)


def random_decoder(family, seed):
    """A model of the family in sizes of the seed that two tp ranks can share, with weights that no mistake hides behind."""
    rng = random.Random(f"{family} sizes {seed}")
    if family == "llama":
        kv_heads = rng.choice((1, 2, 4))
        heads = kv_heads * rng.choice((2, 4, 6) if kv_heads == 1 else (1, 2, 3))
        sizes = dict(vocab_size=rng.randint(60, 140), hidden_size=heads * rng.randint(3, 8), intermediate_size=rng.randint(20, 90),
                     num_hidden_layers=rng.randint(2, 4), num_attention_heads=heads, num_key_value_heads=kv_heads,
                     head_dim=rng.randint(2, 20) * 2, max_position_embeddings=POSITIONS, attention_bias=rng.random() < 0.3)
        scaled = LLAMAS[rng.choice(("gqa", "linear", "llama3", "yarn"))].get("rope_parameters")
        if scaled:
            sizes["rope_parameters"] = scaled
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **sizes}))
    elif family == "gpt2":
        heads = rng.choice((2, 4, 6))
        sizes = dict(vocab_size=rng.randint(60, 140), n_embd=heads * rng.randint(4, 12), n_layer=rng.randint(2, 4), n_head=heads,
                     n_positions=POSITIONS)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**sizes, **GPT2S[rng.choice(sorted(GPT2S))]}))
    else:
        tries = (random_family(family, f"{seed}.{i}") for i in range(1000))
        model = next(model for model in tries if fits_two_ranks(model.config))
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    return randomize(model, seed)


def random_prompts(vocabulary, count, seed, longest=40):
    """Prompts of 1 to `longest` tokens and, for each, how many tokens to answer."""
    rng = random.Random(f"prompts {seed}")
    return [([rng.randrange(vocabulary) for _ in range(rng.choice((1, 2, rng.randint(3, longest), longest)))], rng.randint(1, 20))
            for _ in range(count)]


def greedy_answers(model, prompts):
    """For each prompt, the tokens that have the largest logit, one after the other, and the smallest lead that one of them had. Without a cache
    where a window is one token: the cache of transformers then keeps all tokens instead of none."""
    answers, lead = [], float("inf")
    cached = getattr(model.config, "sliding_window", None) != 1
    model = model.double()
    with all_in_float64(), torch.no_grad():
        if hasattr(model, "model"):  # its frequencies, too
            model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
        for prompt, count in prompts:
            ids, cache, answer = torch.tensor([prompt]), None, []
            for _ in range(count):
                out = model(ids, past_key_values=cache, use_cache=cached)
                best = out.logits[0, -1].topk(2)
                lead = min(lead, float(best.values[0] - best.values[1]))
                answer.append(int(best.indices[0]))
                cache, token = out.past_key_values, best.indices[:1].view(1, 1)
                ids = token if cached else torch.cat((ids, token), 1)
            answers.append(answer)
    return answers, lead
