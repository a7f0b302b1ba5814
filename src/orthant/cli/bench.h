// The benchmarks behind `orthant bench`, one function each.
#pragma once

#include "orthant/cli/command.h"

namespace orthant::cli {

int run_bench_step(const Arguments& arguments, Context& context);
int run_bench_pipeline(const Arguments& arguments, Context& context);
int run_bench_comm(const Arguments& arguments, Context& context);
int run_bench_startup(const Arguments& arguments, Context& context);
int run_bench_tokenize(const Arguments& arguments, Context& context);
int run_bench_checkpoint(const Arguments& arguments, Context& context);
int run_bench_kernels(const Arguments& arguments, Context& context);
int run_bench_generate(const Arguments& arguments, Context& context);
int run_bench_load(const Arguments& arguments, Context& context);

}  // namespace orthant::cli
