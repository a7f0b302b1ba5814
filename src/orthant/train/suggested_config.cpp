#include "orthant/train/suggested_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <filesystem>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/nearest.h"
#include "orthant/data/data_kind.h"
#include "orthant/data/data_look.h"
#include "orthant/data/document_reader.h"
#include "orthant/data/table_look.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/tensor_folder.h"
#include "orthant/launch/scripts.h"
#include "orthant/models/example_names.h"
#include "orthant/models/family.h"
#include "orthant/train/model_folders.h"
#include "orthant/train/named_model.h"
#include "orthant/train/run_config.h"
#include "orthant/train/suggested_training.h"
#include "orthant/train/table_findings.h"

namespace orthant {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string> kUses = {"finetune", "pretrain", "classify"};

bool holds_documents(DataForm form) {
  return form == DataForm::text || form == DataForm::rows;
}

// How much there is to train on, and in which pieces.
struct Amount {
  std::int64_t samples = 0;
  std::int64_t length = 0;
  double eval_fraction = 0;
};

class Suggestion {
 public:
  explicit Suggestion(const SuggestOptions& options) : options_(options) {}

  SuggestedConfig make();

 private:
  void look_at_model();
  void choose_text_column();
  void choose_use();
  void check_use() const;
  void choose_tokenizer();
  void choose_separator();
  void tell_documents();
  void tell_corpus(const CorpusLook& look, std::int64_t samples);
  void choose_begin();
  void choose_corpus();
  void choose_generated();
  void choose_table();
  void choose_training();
  void refuse_foreign_ids(const CorpusLook& look) const;
  std::string run_name() const;
  std::int64_t positions() const { return max_sequence(config_.value()); }
  void found(const char* what, std::string text) { result_.found.emplace_back(what, std::move(text)); }
  bool pretrained() const { return model_ && model_->weights && result_.use != "pretrain"; }

  SuggestOptions options_;
  std::optional<NamedModel> model_;
  std::optional<ModelConfig> config_;  // as it will be trained
  std::optional<DataFound> data_;
  std::string tokenizer_name_;
  std::optional<Tokenizer> tokenizer_;
  Json model_section_, data_section_;
  Amount amount_;
  SuggestedConfig result_;
};

bool reads_tables(const std::optional<NamedModel>& model) {
  return !model || model->config.family().task != Task::next_token;
}

// As training would refuse the folder.
void refuse_pickles(const std::string& folder) {
  try {
    TensorFolder::open(folder);
  } catch (const DataError& error) {
    throw DataError(error.message(), {.remedy = error.remedy() + "; or start without weights: --for pretrain"});
  }
}

void Suggestion::look_at_model() {
  if (options_.model.empty()) return;
  model_ = find_named_model(options_.model);
  if (model_->pickles && options_.use != "pretrain") refuse_pickles(model_->folder);
  found("model", fmt::format("{}: {}, {} parameters, up to {} positions, {}", options_.model,
                             model_kind(model_->config), format_count(model_->parameters), max_sequence(model_->config),
                             model_->folder.empty() ? "a preset without weights"
                             : model_->weights      ? "with weights"
                                                    : "without weights"));
}

void Suggestion::choose_text_column() {
  if (!data_ || data_->form != DataForm::rows) return;
  const auto& columns = data_->columns;
  if (columns.size() == 1) data_->text_column = columns[0];
  const auto& named = options_.text_column;
  if (named.empty()) return;
  if (std::ranges::find(columns, named) == columns.end()) {
    throw ConfigError(fmt::format("--text-column {}: {} has no such column", named, options_.data),
                      {.remedy = did_you_mean(named, columns)});
  }
  data_->text_column = named;
}

void Suggestion::choose_use() {
  result_.use = options_.use;
  if (!result_.use.empty()) return;
  const bool rows = data_ && data_->form == DataForm::rows;
  std::string why;
  if (rows && reads_tables(model_) && (data_->label_column || !data_->text_column || !options_.label.empty())) {
    result_.use = "classify";
    why = "a table";
  } else if (model_ && model_->weights) {
    result_.use = "finetune";
    why = "a model with weights";
  } else {
    result_.use = "pretrain";
    why = "no weights to start from";
  }
  found("use", fmt::format("{}: {} (--for says otherwise)", result_.use, why));
}

void Suggestion::check_use() const {
  if (result_.use == "classify") {
    if (!data_ || data_->form != DataForm::rows) {
      throw ConfigError(
          fmt::format("--for classify needs a table, found {}", options_.data.empty() ? "no --data" : options_.data),
          {.remedy = "name a .csv, .tsv, .jsonl or .json file with --data, or use --for pretrain"});
    }
    if (!reads_tables(model_)) {
      throw ConfigError(fmt::format("--for classify with --model {}: a {} model does not classify here", options_.model,
                                    model_kind(model_->config)),
                        {.remedy = fmt::format("name a {} folder, or leave --model out", kExampleEncoders)});
    }
    return;
  }
  if (result_.use == "finetune" && !(model_ && model_->weights)) {
    throw ConfigError(fmt::format("--for finetune needs weights, found {}",
                                  model_ ? fmt::format("none in {}", options_.model) : std::string("no --model")),
                      {.remedy = "name a Hugging Face folder with model.safetensors, or use --for pretrain"});
  }
  if (model_ && model_->config.family().task == Task::classification) {
    throw ConfigError(
        fmt::format("--model {} classifies rows of a table, and --for is {}", options_.model, result_.use),
        {.remedy = "use --for classify with a table"});
  }
  if (data_ && data_->form == DataForm::rows && !data_->text_column) {
    throw ConfigError(fmt::format("{}: none of its columns is called text (columns: {})", options_.data,
                                  fmt::join(data_->columns, ", ")),
                      {.remedy = "name the column with --text-column"});
  }
}

void Suggestion::choose_tokenizer() {
  if (!data_) return;
  tokenizer_name_ = options_.tokenizer;
  if (tokenizer_name_.empty() && model_ && model_->tokenizer) tokenizer_name_ = model_->folder;
  const bool needed = holds_documents(data_->form);
  if (!needed && tokenizer_name_.empty()) return;
  if (!options_.tokenizer.empty() || needed) {
    const bool rows = data_->form == DataForm::rows;
    tokenizer_name_ = require_tokenizer(tokenizer_name_, "--tokenizer", rows ? options_.data : "",
                                        rows ? data_->text_columns : std::vector<std::string>());
  }
  tokenizer_ = Tokenizer::load(tokenizer_name_);
  found("tokenizer", fmt::format("{}: {}, {} tokens", tokenizer_name_, tokenizer_->kind(), tokenizer_->vocab_size()));
}

void Suggestion::refuse_foreign_ids(const CorpusLook& look) const {
  if (tokenizer_ && look.fingerprint != 0 && tokenizer_->fingerprint() != look.fingerprint) {
    throw DataError(fmt::format("{} was prepared with another tokenizer than {}", options_.data, tokenizer_name_),
                    {.remedy = fmt::format("prepare it again: orthant data prepare-text --tokenizer {}",
                                           launch::shell_quote(tokenizer_name_))});
  }
  if (!model_ || model_->folder.empty() || look.largest_id < vocab_size(model_->config)) return;
  throw DataError(fmt::format("{} has ids up to {}, and the vocabulary of {} has {}", options_.data, look.largest_id,
                              options_.model, vocab_size(model_->config)),
                  {.remedy = "use ids that the model's own tokenizer made"});
}

ModelConfig model_of_section(const Json& section) {
  const auto document = JsonDocument::parse(Json{{"model", section}}.dump(), {.source = "init"});
  return read_model(JsonReader(document).require_object("model"));
}

void Suggestion::choose_separator() {
  if (options_.separator.empty()) return;
  check_separator(options_.separator);
  if (!data_ || data_->form != DataForm::text) {
    throw ConfigError(fmt::format("--separator {} with {}: only text files have a separator of documents",
                                  options_.separator, options_.data.empty() ? "no --data" : options_.data),
                      {.remedy = "leave --separator out, or name a text file or a folder of .txt files with --data"});
  }
  data_->separator = options_.separator;
}

// An end token follows each document: a model that sees few of them does not learn where to stop.
void Suggestion::tell_documents() {
  constexpr std::int64_t kFew = 20;
  const auto text_of = [](const DocumentCount& count) {
    return fmt::format("{}{}", count.estimated ? "about " : "", count.documents);
  };
  const auto count = count_documents(*data_, data_->separator);
  auto text = text_of(count);
  if (count.documents < kFew) {
    text += ": the end token is hardly seen";
    for (const char* other : {"blank-line", "line"}) {
      if (!options_.separator.empty()) break;
      const auto more = count_documents(*data_, other);
      if (more.documents < kFew) continue;
      text += fmt::format("; --separator {} would give {}", other, text_of(more));
      break;
    }
  }
  found("documents", text);
}

// Said and written where the tokenizer puts a token before a text.
void Suggestion::choose_begin() {
  const auto& begin = tokenizer_->document_begin();
  if (begin.empty()) return;
  const auto text = tokenizer_->decode(begin);  // SentencePiece shows nothing of its control pieces
  found("begin",
        fmt::format("each document begins with {}, as the tokenizer has it; data.begin_token=false leaves it out",
                    text.empty() ? "the begin token" : text));
  data_section_["_comment_begin_token"] =
      "null: documents begin as the tokenizer has it. false leaves its begin token out, true adds it.";
  data_section_["begin_token"] = nullptr;
}

void Suggestion::tell_corpus(const CorpusLook& look, std::int64_t samples) {
  constexpr std::array<const char*, 5> kForms = {"text", "rows of text", "prepared tokens", "ids", "JSON lines of ids"};
  found("data", fmt::format("{}: {}, {}{} tokens{}", options_.data, kForms[static_cast<std::size_t>(data_->form)],
                            holds_documents(data_->form) ? "about " : "", format_count(look.tokens),
                            look.token_type.empty() ? "" : fmt::format(" of type {} by their look", look.token_type)));
  if (data_->form == DataForm::text) tell_documents();
  if (data_->form == DataForm::text && look.windows_lines) {
    found("line ends",
          fmt::format("of Windows: the model learns \\r before each line end; sed -i 's/\\r$//' {} removes it",
                      launch::shell_quote(data_->files[0])));
  }
  found("length", fmt::format("{} tokens a sample, {} samples; {}, the model has {} positions", amount_.length, samples,
                              look.whole ? "documents have no known end"
                                         : fmt::format("99 of 100 documents have at most {}", look.document_tokens),
                              positions()));
}

void Suggestion::choose_corpus() {
  const auto look = look_at_corpus(*data_, tokenizer_);
  refuse_foreign_ids(look);
  const auto vocabulary = std::max(look.vocab_size, look.largest_id + 1);
  if (!model_) {
    model_section_ = small_language_model(vocabulary);
  } else if (!model_->folder.empty()) {
    model_section_ = pretrained() ? Json{{"path", model_->folder}} : sizes_of_folder(model_->folder);
  } else {
    model_section_ = {{"preset", model_->preset}};
    const auto preset = vocab_size(model_->config);
    if (look.vocab_size > 0 ? vocabulary != preset : vocabulary > preset) model_section_["vocab_size"] = vocabulary;
  }
  config_ = model_of_section(model_section_);
  if (config_->family().task == Task::masked_token && !look.mask) {
    throw ConfigError(
        fmt::format("--model {} learns masked tokens, and the tokenizer of {} has no mask token or is not known",
                    options_.model, options_.data),
        {.remedy = fmt::format("use a {} tokenizer (--tokenizer)", kExampleEncoders)});
  }
  constexpr std::int64_t kShortest = 8;
  if (look.tokens < 2 * kShortest) {
    throw DataError(fmt::format("{} has {} tokens, too few to train on", options_.data, look.tokens),
                    {.remedy = fmt::format("name data with {} tokens at least", 2 * kShortest)});
  }
  // As long as a document, but at least 64 samples in the corpus, and no longer than most machines can hold.
  constexpr std::int64_t kLongest = 2048;
  const auto documents =
      look.whole ? kLongest
                 : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(look.document_tokens)));
  const auto most = std::min({documents, kLongest, positions()});
  amount_.length = std::min(most, std::max(kShortest, power_of_two(look.tokens / 64)));
  const auto samples = std::max<std::int64_t>(1, look.tokens / amount_.length);
  amount_.eval_fraction = samples >= 40 ? 0.05 : 0;
  amount_.samples =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(samples) * (1 - amount_.eval_fraction)));
  data_section_ = {{"kind", "text"}};
  data_section_["path"] = data_->files.size() == 1 ? Json(data_->files[0]) : Json(data_->files);
  if (data_->form != DataForm::prepared && !tokenizer_name_.empty()) data_section_["tokenizer"] = tokenizer_name_;
  if (data_->form == DataForm::text) {
    data_section_["_comment_separator"] =
        "What ends a document: file, blank-line or line. An end token follows each document.";
    data_section_["separator"] = data_->separator;
  }
  if (holds_documents(data_->form)) choose_begin();
  if (!look.text_column.empty()) data_section_["text_column"] = look.text_column;
  if (!look.token_type.empty()) data_section_["token_type"] = look.token_type;
  if (!data_->ids_column.empty()) data_section_["ids_column"] = data_->ids_column;
  data_section_["sequence_length"] = amount_.length;
  data_section_["eval_fraction"] = amount_.eval_fraction;
  tell_corpus(look, samples);
}

void Suggestion::choose_generated() {
  model_section_ = !model_->preset.empty() ? Json{{"preset", model_->preset}}
                   : pretrained()          ? Json{{"path", model_->folder}}
                                           : sizes_of_folder(model_->folder);
  config_ = model_of_section(model_section_);
  constexpr std::int64_t kSamples = 4096;
  amount_ = {.samples = kSamples, .length = std::min<std::int64_t>(128, positions()), .eval_fraction = 0.05};
  data_section_ = {{"kind", "tokens"},
                   {"sequence_length", amount_.length},
                   {"samples", kSamples},
                   {"eval_fraction", amount_.eval_fraction}};
  found("data", "none named: pseudo-text is generated, to try the run; name yours with --data");
}

void Suggestion::choose_table() {
  const auto look = look_at_table(*data_, *tokenizer_, options_.label, options_.text_column);
  model_section_ = table_model(model_, tokenizer_->vocab_size());
  const auto numbers = static_cast<std::int64_t>(look.numbers.size());
  model_section_["tabular"] = numbers == 0 ? Json() : Json{{"input_dim", numbers}, {"hidden_dim", 32}};
  model_section_["fusion"] = {{"hidden_size", 128}, {"dropout", 0.1}};
  model_section_["num_labels"] = look.labels.size();
  config_ = model_of_section(model_section_);
  const auto rounded = [&](std::int64_t tokens) {
    return std::min(positions(), std::max<std::int64_t>(8, (tokens + 7) / 8 * 8));
  };
  amount_.length = rounded(look.primary_tokens);
  amount_.eval_fraction = look.rows >= 20 ? 0.1 : 0;
  amount_.samples = std::max<std::int64_t>(
      1, look.rows - static_cast<std::int64_t>(static_cast<double>(look.rows) * amount_.eval_fraction));
  data_section_ = {{"kind", kTableKind},
                   {"path", options_.data},
                   {"tokenizer", tokenizer_name_},
                   {"primary_text", look.primary_text}};
  data_section_["secondary_text"] = look.secondary_text.empty() ? Json() : Json(look.secondary_text);
  data_section_["tabular"] = look.numbers;
  data_section_["label"] = look.label;
  constexpr std::int64_t kFewest = 10;  // the held-out part leaves some of them
  const auto fewest = look.labels.back().count;
  const bool uneven = fewest >= kFewest && look.labels.front().count >= 3 * fewest;
  if (uneven) data_section_["class_weights"] = "balanced";
  data_section_["_comment_bad_rows"] =
      "stop ends the run at the first bad row; skip leaves bad rows out and counts them.";
  data_section_["bad_rows"] = look.bad_rows > 0 || !look.worded_numbers.empty() ? "skip" : "stop";
  data_section_["sequence_length"] = amount_.length;
  data_section_["secondary_length"] = rounded(look.secondary_tokens);
  data_section_["eval_fraction"] = amount_.eval_fraction;
  for (auto& line : table_findings(look, options_.data)) result_.found.push_back(std::move(line));
}

std::string Suggestion::run_name() const {
  const auto& from = options_.data.empty() ? options_.model : options_.data;
  const auto path = std::filesystem::path(from).lexically_normal();
  auto stem = (path.has_filename() ? path : path.parent_path()).stem().string();
  std::ranges::replace_if(
      stem, [](unsigned char letter) { return std::isalnum(letter) == 0 && letter != '_' && letter != '.'; }, '-');
  while (!stem.empty() && (stem.front() == '-' || stem.front() == '.')) stem.erase(0, 1);
  return fmt::format("{}{}{}", stem.substr(0, 100), stem.empty() ? "" : "-", result_.use);
}

void Suggestion::choose_training() {
  auto& config = result_.config;
  config["_comment"] = fmt::format(
      "Written by orthant init for {}. Any value may be changed: docs/training.md lists the keys. Keys that begin with "
      "_comment are not read.",
      result_.use);
  config["name"] = run_name();
  config["seed"] = 0;
  add_section(config, "model",
              pretrained() ? "Sizes and first weights come from the folder." : "Weights are drawn from the seed.",
              model_section_);
  add_section(
      config, "data",
      fmt::format("About {} samples to train on; the part eval_fraction of the data is held out.", amount_.samples),
      data_section_);
  found("training", add_training(config, {.use = result_.use,
                                          .pretrained = pretrained(),
                                          .parameters = num_parameters(*config_),
                                          .samples = amount_.samples,
                                          .length = amount_.length,
                                          .eval_fraction = amount_.eval_fraction,
                                          .card = options_.card}));
}

SuggestedConfig Suggestion::make() {
  if (options_.model.empty() && options_.data.empty()) {
    throw ConfigError(
        "neither --model nor --data is given",
        {.remedy = "name a Hugging Face folder or a preset with --model, your files with --data, or both"});
  }
  if (!options_.use.empty() && std::ranges::find(kUses, options_.use) == kUses.end()) {
    throw ConfigError(fmt::format("--for {}: unknown use", options_.use),
                      {.remedy = did_you_mean(options_.use, kUses)});
  }
  look_at_model();
  if (!options_.data.empty()) data_ = find_data(options_.data);
  choose_text_column();
  choose_separator();
  choose_use();
  check_use();
  choose_tokenizer();
  if (!data_) {
    choose_generated();
  } else if (result_.use == "classify") {
    choose_table();
  } else {
    choose_corpus();
  }
  choose_training();
  read_run_config(JsonDocument::parse(result_.config.dump(), {.source = "the written configuration"}));
  return std::move(result_);
}

}  // namespace

SuggestedConfig suggest_config(const SuggestOptions& options) {
  return Suggestion(options).make();
}

}  // namespace orthant
