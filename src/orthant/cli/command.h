// What every command shares: its place in the table, parsing with our manners (dashes and underscores alike, nearest
// name on a mistake, one worked example), and where results and progress go.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "orthant/launch/job.h"
#include "orthant/launch/token.h"

namespace orthant::cli {

class OptionParser;

// What a command may know of the process it runs in.
struct Context {
  launch::Environment environment;                            // without the job token
  std::shared_ptr<const launch::Secret> token_variable = {};  // ORTHANT_TOKEN; null: not set
  std::string program;             // path of this executable, to start it again for ranks that need a fresh process
  std::vector<std::string> words;  // the whole command line after the program
  bool color = false;
};

using Arguments = std::vector<std::string>;

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Arguments& arguments, Context& context);
};

const std::vector<Command>& commands();

int run_train(const Arguments& arguments, Context& context);
int run_init(const Arguments& arguments, Context& context);
int run_evaluate(const Arguments& arguments, Context& context);
int run_predict(const Arguments& arguments, Context& context);
int run_parity(const Arguments& arguments, Context& context);
int run_data(const Arguments& arguments, Context& context);
int run_generate(const Arguments& arguments, Context& context);
int run_serve(const Arguments& arguments, Context& context);
int run_forward(const Arguments& arguments, Context& context);
int run_checkpoint(const Arguments& arguments, Context& context);
int run_tokenize(const Arguments& arguments, Context& context);
int run_mesh(const Arguments& arguments, Context& context);
int run_simulate(const Arguments& arguments, Context& context);
int run_plan(const Arguments& arguments, Context& context);
int run_estimate(const Arguments& arguments, Context& context);
int run_bench(const Arguments& arguments, Context& context);
int run_doctor(const Arguments& arguments, Context& context);
int run_report(const Arguments& arguments, Context& context);
int run_watch(const Arguments& arguments, Context& context);
int run_launch(const Arguments& arguments, Context& context);

// Runs the command of `table` that the first word names: `orthant bench comm` is comm of the group bench. Help, and a
// ConfigError that names the nearest one, otherwise.
int run_sub_command(const std::string& group, const std::vector<Command>& table, const std::string& example,
                    const Arguments& arguments, Context& context);

// Adds `--no-color` and the example, parses, and turns every mistake into a ConfigError that names the nearest valid
// option. Returns false when `--help` was asked for and has been printed.
bool parse(OptionParser& app, const Arguments& arguments, Context& context, const std::string& example);

// ConfigError when one of these options was given an empty value, as by an unset variable of a script.
void refuse_empty(const OptionParser& app, const std::vector<const char*>& options);

// Writes what an option asked for. A file is replaced whole or stays as it was; a device or pipe is written to. Errors
// name the option, the path and the system's reason: IoError where the disk is full, else ConfigError.
void write_output(const char* option, const std::string& path, const std::string& text);

// ConfigError unless 0 < seconds <= 10^7, which every clock here can hold.
void check_timeout(double seconds);

// `--some_flag=x` becomes `--some-flag=x`; values and everything after a lone `--` stay as they are.
Arguments with_dashes(const Arguments& arguments);

}  // namespace orthant::cli
