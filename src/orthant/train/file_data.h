// Data sets from a user's files, checked against the model that will read them. Files are opened and read here.
#pragma once

#include <filesystem>

#include "orthant/data/classifier_table.h"
#include "orthant/data/text_dataset.h"
#include "orthant/models/model_facts.h"
#include "orthant/train/datasets.h"

namespace orthant {

// Saved with the checkpoints of runs on files: sizes and hashes of what they were trained on.
inline constexpr const char* kDataFile = "data.json";

// data.kind of tables: the table as it was read.
struct ReadTable {
  ClassifierTables tables;
  std::string hash;  // of the file
};
ReadTable read_table(const RunConfig& config, const Classifier& model);

// The run's data of it. Takes the class weights over into the model's configuration.
RunData table_data(RunConfig& config, const Classifier& model, const ReadTable& table);

// Masked language modelling over the tokens of another data set.
std::shared_ptr<const Dataset> masked(const RunConfig& config, std::shared_ptr<const Dataset> tokens,
                                      std::int64_t mask_id, const std::vector<std::int64_t>& special_ids);

// data.kind text: token files or texts, for language models; masked for those that learn masked tokens.
RunData text_data(const RunConfig& config);

// What a trained model scores instead of what it was trained on: all of the file that `data.path` names, prepared as
// its checkpoint says. DataError where that cannot be, as by another tokenizer.
TableToScore table_to_score(const RunConfig& config, const Classifier& model, const std::filesystem::path& checkpoint,
                            bool labels_optional);

// As an evaluation of the run reads text. `checkpoint` may be empty: of a model's own folder nothing more is known.
std::shared_ptr<const Dataset> text_to_evaluate(const RunConfig& config, const std::filesystem::path& checkpoint);

// Each document whole, in windows of data.sequence_length.
struct DocumentsToScore {
  std::shared_ptr<const TextDataset> windows;
  std::shared_ptr<const Dataset> samples;  // the windows as the model reads them
  std::vector<std::int64_t> numbers;       // of the documents that have tokens, among all of the file
  std::int64_t documents = 0;              // of the file
};
DocumentsToScore documents_to_score(const RunConfig& config, const std::filesystem::path& checkpoint);

}  // namespace orthant
