# CPU kernels of a layer: orthant_cpu_kernels(sources ops/norm/cpu_kernels …) appends to `sources` a C++ file for each group
# <name>.inc (a path below src/orthant) and instruction set. See Note [Kernels] in nn/kernels/isa.h.
#
# Each is compiled once for each instruction set, without torch and its precompiled header. Without errno and traps to
# keep, square roots and selections become vector instructions. Two kernels that compute one number (an activation alone, or
# with its gradient) must give the same bits, so multiplications and additions are fused where the source says so, not where
# the optimizer likes; attention has no such pairs and needs every fusion.
set(orthant_cpu_kernel_flags -O3 -fno-math-errno -fno-trapping-math)
set(orthant_cpu_isas plain)
set(plain_values Plain 16)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND orthant_cpu_isas avx2 avx512)
  set(avx2_values Avx2 32)
  set(avx2_flags -mavx2 -mfma)
  set(avx512_values Avx512 64)
  set(avx512_flags -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mprefer-vector-width=512)
endif()

function(orthant_cpu_kernels sources)
  foreach(kernel IN LISTS ARGN)
    foreach(isa IN LISTS orthant_cpu_isas)
      set(source ${CMAKE_CURRENT_BINARY_DIR}/${kernel}_${isa}.cpp)
      list(GET ${isa}_values 0 isa_tag)
      list(GET ${isa}_values 1 isa_bytes)
      configure_file(${CMAKE_SOURCE_DIR}/src/orthant/nn/kernels/isa.cpp.in ${source} @ONLY)
      set(contract $<IF:$<STREQUAL:${kernel},ops/attention/cpu_kernels>,fast,on>)
      set_source_files_properties(${source} PROPERTIES
        COMPILE_OPTIONS "${orthant_cpu_kernel_flags};-ffp-contract=${contract};${${isa}_flags}" SKIP_PRECOMPILE_HEADERS ON)
      list(APPEND ${sources} ${source})
    endforeach()
  endforeach()
  set(${sources} ${${sources}} PARENT_SCOPE)
endfunction()
