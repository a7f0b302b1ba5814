#include "orthant/models/post_norm_layer.h"

#include <ATen/ATen.h>

#include "orthant/nn/attention.h"
#include "orthant/nn/linear.h"
#include "orthant/nn/mlp.h"
#include "orthant/nn/norm.h"

namespace orthant {
namespace {

class Layer : public Unit {
 public:
  Layer(const PostNormLayer& layer, const UnitParameters& p)
      : layer_(layer),
        name_(p.spec().name),
        qkv_(p.joined("qkv")),
        qkv_bias_(p.joined("qkv_bias")),
        out_(p["attention.output.weight"]),
        out_bias_(p["attention.output.bias"]),
        norm1_(p["attention.norm.weight"]),
        norm1_bias_(p["attention.norm.bias"]),
        up_(p["mlp.up.weight"]),
        up_bias_(p["mlp.up.bias"]),
        down_(p["mlp.down.weight"]),
        down_bias_(p["mlp.down.bias"]),
        norm2_(p["mlp.norm.weight"]),
        norm2_bias_(p["mlp.norm.bias"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto& x = inputs[0];
    nn::AttentionOptions options;
    options.head_size = layer_.head_size;
    options.heads = out_.value.size(1) / options.head_size;  // of this rank
    options.kv_heads = options.heads;
    options.causal = layer_.causal;
    if (inputs.size() > 1) options.key_mask = inputs[1];
    options.dropout = layer_.attention_dropout;
    options.site = name_ + ".attention.probabilities";
    const auto attended = nn::attention(nn::linear(x, qkv_, &qkv_bias_, pass), out_, &out_bias_, options, pass);
    const auto middle = nn::dropout_add_layer_norm(attended, x, layer_.dropout, name_ + ".attention.dropout", norm1_,
                                                   norm1_bias_, layer_.eps, pass);
    const auto site = name_ + ".mlp.activation";
    const auto narrow =
        nn::activation_linear(nn::linear(middle, up_, &up_bias_, pass),
                              {layer_.activation, layer_.activation_dropout, site}, down_, &down_bias_, pass);
    return {nn::dropout_add_layer_norm(narrow, middle, layer_.dropout, name_ + ".mlp.dropout", norm2_, norm2_bias_,
                                       layer_.eps, pass)};
  }

 private:
  const PostNormLayer layer_;
  std::string name_;
  nn::Parameter& qkv_;
  nn::Parameter& qkv_bias_;
  nn::Parameter& out_;
  nn::Parameter& out_bias_;
  nn::Parameter& norm1_;
  nn::Parameter& norm1_bias_;
  nn::Parameter& up_;
  nn::Parameter& up_bias_;
  nn::Parameter& down_;
  nn::Parameter& down_bias_;
  nn::Parameter& norm2_;
  nn::Parameter& norm2_bias_;
};

}  // namespace

std::unique_ptr<Unit> make_post_norm_layer(const PostNormLayer& layer, const UnitParameters& parameters) {
  return std::make_unique<Layer>(layer, parameters);
}

}  // namespace orthant
