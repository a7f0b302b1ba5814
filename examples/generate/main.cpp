// A stored model goes on with texts: generate MODEL MESH PROMPT... on as many ranks as the mesh has, as in
//   orthant launch --nproc 2 -- ./generate Llama-3.2-1B tp=2 "Once upon a time"
#include <orthant/orthant.h>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc < 4) throw orthant::ConfigError("too few words", {.remedy = "generate MODEL MESH PROMPT..."});
  const auto job = orthant::join();
  orthant::LLM llm(argv[1], orthant::Mesh::parse(argv[2]), {.job = job});
  const auto outputs =
      llm.generate({argv + 3, argv + argc}, orthant::SamplingParams{.temperature = 0, .max_tokens = 16});
  if (job.rank != 0) return 0;
  for (const auto& output : outputs) std::cout << output.prompt << output.text << '\n';
} catch (const orthant::Error& error) {
  std::cerr << error.what() << '\n';
  return error.exit_code();
}
