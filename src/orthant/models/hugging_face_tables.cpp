#include "orthant/models/hugging_face_tables.h"

#include <array>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::array<ModuleRow, 13> kLlamaBody = {{
    {"embed", "embed_tokens"},
    {"layers.*.attention.wq", "layers.*.self_attn.q_proj"},
    {"layers.*.attention.wk", "layers.*.self_attn.k_proj"},
    {"layers.*.attention.wv", "layers.*.self_attn.v_proj"},
    {"layers.*.attention.wo", "layers.*.self_attn.o_proj"},
    {"layers.*.attention.q_norm", "layers.*.self_attn.q_norm"},
    {"layers.*.attention.k_norm", "layers.*.self_attn.k_norm"},
    {"layers.*.mlp.w1", "layers.*.mlp.gate_proj"},
    {"layers.*.mlp.w2", "layers.*.mlp.down_proj"},
    {"layers.*.mlp.w3", "layers.*.mlp.up_proj"},
    {"layers.*.norm1", "layers.*.input_layernorm"},
    {"layers.*.norm2", "layers.*.post_attention_layernorm"},
    {"head.norm", "norm"},
}};
constexpr std::array<ModuleRow, 1> kLlamaHead = {{{"head", "lm_head"}}};
constexpr std::array<RepeatRow, 1> kLlamaRepeats = {{{"lm_head.weight", "embed_tokens.weight", true}}};
constexpr std::array<std::string_view, 3> kLlamaRoots = {"embed_tokens.", "layers.", "norm."};

constexpr std::array<ModuleRow, 9> kGpt2Body = {{
    {"embed.wte", "wte"},
    {"embed.wpe", "wpe"},
    {"layers.*.ln_1", "h.*.ln_1"},
    {"layers.*.attn.c_attn", "h.*.attn.c_attn", true},
    {"layers.*.attn.c_proj", "h.*.attn.c_proj", true},
    {"layers.*.ln_2", "h.*.ln_2"},
    {"layers.*.mlp.c_fc", "h.*.mlp.c_fc", true},
    {"layers.*.mlp.c_proj", "h.*.mlp.c_proj", true},
    {"head.ln_f", "ln_f"},
}};
constexpr std::array<ModuleRow, 1> kGpt2Head = {{{"head.lm_head", "lm_head"}}};
constexpr std::array<RepeatRow, 1> kGpt2Repeats = {{{"lm_head.weight", "wte.weight", true}}};
constexpr std::array<std::string_view, 4> kGpt2Roots = {"wte.", "wpe.", "h.", "ln_f."};

constexpr std::array<ModuleRow, 12> kBertBody = {{
    {"embed.word", "embeddings.word_embeddings"},
    {"embed.position", "embeddings.position_embeddings"},
    {"embed.token_type", "embeddings.token_type_embeddings"},
    {"embed.norm", "embeddings.LayerNorm"},
    {"layers.*.attention.query", "encoder.layer.*.attention.self.query"},
    {"layers.*.attention.key", "encoder.layer.*.attention.self.key"},
    {"layers.*.attention.value", "encoder.layer.*.attention.self.value"},
    {"layers.*.attention.output", "encoder.layer.*.attention.output.dense"},
    {"layers.*.attention.norm", "encoder.layer.*.attention.output.LayerNorm"},
    {"layers.*.mlp.up", "encoder.layer.*.intermediate.dense"},
    {"layers.*.mlp.down", "encoder.layer.*.output.dense"},
    {"layers.*.mlp.norm", "encoder.layer.*.output.LayerNorm"},
}};
constexpr std::array<ModuleRow, 1> kBertPooler = {{{"pooler.dense", "pooler.dense"}}};
constexpr std::array<ModuleRow, 3> kBertHead = {{
    {"head.dense", "cls.predictions.transform.dense"},
    {"head.norm", "cls.predictions.transform.LayerNorm"},
    {"head", "cls.predictions"},
}};
constexpr std::array<RepeatRow, 2> kBertRepeats = {{
    {"cls.predictions.decoder.weight", "embeddings.word_embeddings.weight", true},
    {"cls.predictions.decoder.bias", "cls.predictions.bias"},
}};
constexpr std::array<ModuleRow, 3> kRobertaHead = {{
    {"head.dense", "lm_head.dense"},
    {"head.norm", "lm_head.layer_norm"},
    {"head", "lm_head"},
}};
constexpr std::array<RepeatRow, 2> kRobertaRepeats = {{
    {"lm_head.decoder.weight", "embeddings.word_embeddings.weight", true},
    {"lm_head.decoder.bias", "lm_head.bias"},
}};
constexpr std::array<std::string_view, 2> kBertRoots = {"embeddings.", "encoder."};

constexpr NameTable kLlama = {"model.", kLlamaBody, {}, kLlamaHead, kLlamaRepeats, kLlamaRoots, "layers."};
constexpr NameTable kGpt2 = {"transformer.", kGpt2Body, {}, kGpt2Head, kGpt2Repeats, kGpt2Roots, "h."};
constexpr NameTable kBert = {"bert.", kBertBody, kBertPooler, kBertHead, kBertRepeats, kBertRoots, "encoder.layer."};
constexpr NameTable kRoberta = {"roberta.",      kBertBody,  kBertPooler,     kRobertaHead,
                                kRobertaRepeats, kBertRoots, "encoder.layer."};

}  // namespace

const NameTable& name_table(TensorFamily family) {
  switch (family) {
    case TensorFamily::llama:
      return kLlama;
    case TensorFamily::gpt2:
      return kGpt2;
    case TensorFamily::bert:
      return kBert;
    case TensorFamily::roberta:
      return kRoberta;
  }
  throw InternalError("a family without names");
}

}  // namespace orthant
