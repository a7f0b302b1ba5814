// Texts of commands that name models: examples of command lines, and help.
#pragma once

namespace orthant::cli {

namespace example {

inline constexpr const char* kBenchCheckpoint = "orthant bench checkpoint --config llama.json --mesh fsdp=2 --json";
inline constexpr const char* kBenchGenerate = "orthant bench generate --model Llama-3.2-1B --batch 1,8,32 --json";
inline constexpr const char* kBenchLoad = "orthant bench load --model Llama-3.2-1B --json";
inline constexpr const char* kBenchStep = "orthant bench step --config llama.json --steps 10 --json";
inline constexpr const char* kBenchTokenize = "orthant bench tokenize --tokenizer gpt2 --text book.txt";
inline constexpr const char* kCheckpointImport = "orthant checkpoint import Llama-3.2-1B llama-start";
inline constexpr const char* kPrepareText =
    "orthant data prepare-text --input books/*.txt --tokenizer gpt2/tokenizer.json --out books-gpt2";
inline constexpr const char* kInit =
    "orthant init --model Llama-3.2-1B --data notes.txt run.json\n"
    "  orthant init --data claims.csv --tokenizer vocab.txt run.json";
inline constexpr const char* kTokenize = "echo 'Hello world' | orthant tokenize --tokenizer gpt2/tokenizer.json";
inline constexpr const char* kGenerate =
    "orthant generate --model Llama-3.2-1B --prompt 'Once upon a time' --max-tokens 64 --temperature 0.8";
inline constexpr const char* kServe =
    "orthant serve --model Llama-3.2-1B --port 8000\n"
    "  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' "
    "-d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 32}'";
inline constexpr const char* kEstimate =
    "orthant estimate --model llama3-8b --gpu h100-80gb --mesh fsdp=8 --micro-batch 1 "
    "--global-batch 64 --seq 8192 --recompute selective";
inline constexpr const char* kPlan =
    "orthant plan --model llama3-8b --gpus 8 --gpu h100-80gb --global-batch 64 --seq 8192";

}  // namespace example

namespace help {

inline constexpr const char* kPlannedModel =
    "name of a model (llama3-8b, ...), a JSON file with a model section, or a Hugging Face folder";
inline constexpr const char* kTower = "primary or secondary: that encoder of a trimodal model";
inline constexpr const char* kConfig = "configuration file (default: a small trimodal classifier)";
inline constexpr const char* kEvaluatedRun = "folder of a run, such as runs/first, or of an exported trimodal model";
inline constexpr const char* kInitModel =
    "a Hugging Face folder, or a preset such as llama-tiny (default: a small model for the data)";
inline constexpr const char* kTrain =
    "Trains a model by a configuration, which orthant init writes for your own model and data. Without --config: a "
    "small classifier on generated data, to try it.";
inline constexpr const char* kForward =
    "Computes the logits of a stored decoder, or the hidden states of a stored bert, for the rows of a file, on one "
    "rank or on those of --mesh tp=N,cp=M.";

inline constexpr const char* kGenerate =
    "Lets a decoder go on with texts: one prompt, or a file of them that are answered side by side, from a Hugging "
    "Face "
    "folder or a checkpoint of any mesh. On several ranks with --mesh tp=N,pp=M,dp=K.";

inline constexpr const char* kServe =
    "Serves a decoder over HTTP as OpenAI's API has it, with a page to type to it at /. Ranks that are lost are "
    "started "
    "again, by default up to 8 times in a row. On several ranks with --mesh tp=N,pp=M,dp=K.";

}  // namespace help

}  // namespace orthant::cli
