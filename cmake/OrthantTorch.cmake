# Finds libtorch in a Python wheel or an unpacked libtorch and defines orthant::torch.
#
# The wheel's own CMake package is not used: it insists on a CUDA toolkit when the wheel was built with CUDA, and links more
# than we need. TORCH_DIR names the folder that holds include/ and lib/ (…/site-packages/torch); without it the wheel in the
# project's .venv is taken.
include_guard(DIRECTORY)  # as imported targets are known

set(TORCH_DIR "$ENV{TORCH_DIR}" CACHE PATH "Folder of libtorch: the one that holds include/ and lib/")
set(torch_root "${TORCH_DIR}")
if(NOT torch_root)
  file(GLOB torch_candidates ${CMAKE_CURRENT_LIST_DIR}/../.venv/lib/python3*/site-packages/torch)
  list(APPEND torch_candidates ${ORTHANT_TORCH_HINT})
  foreach(candidate IN LISTS torch_candidates)
    if(EXISTS ${candidate}/lib/libtorch_cpu.so)
      get_filename_component(torch_root ${candidate} REALPATH)
      break()
    endif()
  endforeach()
endif()
if(NOT torch_root)
  message(FATAL_ERROR "No libtorch found in .venv. Run tools/setup, or set TORCH_DIR to a folder with include/ and lib/ "
    "(for a wheel: python3 -c 'import torch, os; print(os.path.dirname(torch.__file__))').")
endif()
foreach(needed include/ATen/ATen.h include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp lib/libtorch_cpu.so lib/libc10.so)
  if(NOT EXISTS ${torch_root}/${needed})
    message(FATAL_ERROR "TORCH_DIR=${torch_root} has no ${needed}: it is not a complete libtorch with c10d headers.")
  endif()
endforeach()

set(torch_version_header ${torch_root}/include/torch/headeronly/version.h)
if(NOT EXISTS ${torch_version_header})
  set(torch_version_header ${torch_root}/include/torch/version.h)
endif()
file(STRINGS ${torch_version_header} torch_version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
list(JOIN torch_version_lines " " torch_version_text)
string(REGEX REPLACE "[^0-9]*MAJOR ([0-9]+)[^0-9]*MINOR ([0-9]+).*" "\\1.\\2" torch_version "${torch_version_text}")
if(torch_version VERSION_LESS 2.11)
  message(FATAL_ERROR "libtorch ${torch_version} in ${torch_root} is too old: 2.11 or newer is needed, 2.13.0 is tested.")
endif()

# In an installed package the target is orthant::torch, which the exported layers name.
if(ORTHANT_TORCH_TARGET)
  set(torch_target ${ORTHANT_TORCH_TARGET})
  add_library(${torch_target} INTERFACE IMPORTED)
else()
  set(torch_target orthant_torch)
  add_library(${torch_target} INTERFACE)
endif()
# -idirafter: the wheel carries its own copy of fmt; placed after the system's folders, the system's fmt serves everybody.
target_compile_options(${torch_target} INTERFACE
  "SHELL:-idirafter ${torch_root}/include" "SHELL:-idirafter ${torch_root}/include/torch/csrc/api/include")
target_compile_definitions(${torch_target} INTERFACE USE_C10D_GLOO)
target_link_directories(${torch_target} INTERFACE ${torch_root}/lib)
target_link_options(${torch_target} INTERFACE "LINKER:-rpath,${torch_root}/lib" "LINKER:--no-as-needed")
# The C++ library comes first: the wheel exports parts of an older std::filesystem, which would answer our calls.
target_link_libraries(${torch_target} INTERFACE stdc++ torch torch_cpu c10 Threads::Threads)
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/gloo_shims AND NOT EXISTS ${torch_root}/include/gloo/context.h)
  set(orthant_gloo_shims ${CMAKE_CURRENT_LIST_DIR}/gloo_shims)
endif()

# CUDA tensors need only libtorch. NCCL groups are made through a header that includes CUDA's and NCCL's own: the former come
# complete only with a toolkit (a wheel's nvidia-* packages lack crt/), the latter with the wheel or a package. Without them
# the build goes on without NCCL, and ranks on GPUs talk over Gloo.
set(ORTHANT_HAS_CUDA OFF)
set(ORTHANT_HAS_NCCL OFF)
if(EXISTS ${torch_root}/lib/libtorch_cuda.so)
  set(ORTHANT_HAS_CUDA ON)
  target_link_libraries(${torch_target} INTERFACE torch_cuda c10_cuda)
  file(GLOB nvidia_folders ${torch_root}/../nvidia/*/include)
  find_path(cuda_include crt/host_config.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include ${nvidia_folders})
  find_path(nccl_include nccl.h HINTS ${nvidia_folders} $ENV{NCCL_HOME}/include /usr/local/cuda/include)
  if(cuda_include AND nccl_include)
    set(ORTHANT_HAS_NCCL ON)
    target_compile_options(${torch_target} INTERFACE "SHELL:-idirafter ${cuda_include}" "SHELL:-idirafter ${nccl_include}")
    target_compile_definitions(${torch_target} INTERFACE USE_C10D_NCCL)
  else()
    message(STATUS "Building without NCCL: no CUDA toolkit headers (set CUDA_HOME) or no nccl.h (set NCCL_HOME)")
  endif()
endif()
message(STATUS "libtorch ${torch_version} in ${torch_root} (CUDA ${ORTHANT_HAS_CUDA}, NCCL ${ORTHANT_HAS_NCCL})")
