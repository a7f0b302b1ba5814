# Finds libtorch in a Python wheel or an unpacked libtorch and defines orthant::torch.
#
# The wheel's own CMake package is not used: it insists on a CUDA toolkit when the wheel was built with CUDA, and links more
# than we need. TORCH_DIR names the folder that holds include/ and lib/ (…/site-packages/torch); without it the wheel in the
# project's .venv is taken. ORTHANT_CUDA asks for a libtorch with CUDA: that of .venv-cuda where .venv holds none.
include_guard(DIRECTORY)  # as imported targets are known

set(TORCH_DIR "$ENV{TORCH_DIR}" CACHE PATH "Folder of libtorch: the one that holds include/ and lib/")
option(ORTHANT_CUDA "Build only with a libtorch that has CUDA" OFF)
set(torch_venvs .venv)
set(torch_library lib/libtorch_cpu.so)
set(torch_setup tools/setup)
if(ORTHANT_CUDA)
  set(torch_venvs .venv-cuda .venv)
  set(torch_library lib/libtorch_cuda.so)
  set(torch_setup "tools/setup cuda")
endif()
set(torch_root "${TORCH_DIR}")
if(NOT torch_root)
  foreach(venv IN LISTS torch_venvs)
    file(GLOB found ${CMAKE_CURRENT_LIST_DIR}/../${venv}/lib/python3*/site-packages/torch)
    list(APPEND torch_candidates ${found})
  endforeach()
  list(APPEND torch_candidates ${ORTHANT_TORCH_HINT})
  foreach(candidate IN LISTS torch_candidates)
    if(EXISTS ${candidate}/${torch_library})
      get_filename_component(torch_root ${candidate} REALPATH)
      break()
    endif()
  endforeach()
endif()
if(NOT torch_root)
  list(JOIN torch_venvs " or " torch_venvs)
  message(FATAL_ERROR "No libtorch (${torch_library}) found in ${torch_venvs}. Run ${torch_setup}, or set TORCH_DIR to a folder with "
    "include/ and lib/ (for a wheel: python3 -c 'import torch, os; print(os.path.dirname(torch.__file__))').")
endif()
foreach(needed include/ATen/ATen.h include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp lib/libc10.so ${torch_library})
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

# libtorch 2.11 exports templates such as Tensor::const_data_ptr<T, 0> under the names that g++ and clang up to 17 give them.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18
    AND torch_version VERSION_EQUAL 2.11)
  target_compile_options(${torch_target} INTERFACE -fclang-abi-compat=17)
  if(NOT ORTHANT_TORCH_TARGET)
    add_compile_options(-fclang-abi-compat=17)  # layers without torch, too: one naming in all of the build
  endif()
endif()

# CUDA tensors need only libtorch. NCCL groups are made through a header that includes CUDA's and NCCL's own. The wheel's
# nvidia-* packages go before a toolkit, which may be of another version: they are complete with nvidia-cuda-crt (crt/) and
# nvidia-cuda-cccl (nv/target), see tools/requirements-cuda.txt. Without these headers the build goes on without NCCL, and
# ranks on GPUs talk over Gloo.
set(ORTHANT_HAS_CUDA OFF)
set(ORTHANT_HAS_NCCL OFF)
if(EXISTS ${torch_root}/lib/libtorch_cuda.so)
  set(ORTHANT_HAS_CUDA ON)
  target_link_libraries(${torch_target} INTERFACE torch_cuda c10_cuda)
  # What libtorch_cuda needs itself (libcuda, which comes with the driver) is looked for when the program starts.
  target_link_options(${torch_target} INTERFACE "LINKER:--allow-shlib-undefined")
  file(GLOB nvidia_folders ${torch_root}/../nvidia/*/include)
  find_path(cuda_include crt/host_config.h PATHS ${nvidia_folders} NO_DEFAULT_PATH)
  find_path(cuda_include crt/host_config.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
  find_path(cccl_include nv/target PATHS ${cuda_include}/cccl ${cuda_include} NO_DEFAULT_PATH)
  find_path(nccl_include nccl.h PATHS ${nvidia_folders} NO_DEFAULT_PATH)
  find_path(nccl_include nccl.h HINTS $ENV{NCCL_HOME}/include /usr/local/cuda/include)
  if(cuda_include AND cccl_include AND nccl_include)
    set(ORTHANT_HAS_NCCL ON)
    foreach(folder IN ITEMS ${cuda_include} ${cccl_include} ${nccl_include})
      target_compile_options(${torch_target} INTERFACE "SHELL:-idirafter ${folder}")
    endforeach()
    target_compile_definitions(${torch_target} INTERFACE USE_C10D_NCCL)
  else()
    message(STATUS "Building without NCCL: found CUDA headers ${cuda_include} (else pip install nvidia-cuda-crt, or set CUDA_HOME), "
      "nv/target ${cccl_include} (else pip install nvidia-cuda-cccl), nccl.h ${nccl_include} (else set NCCL_HOME)")
  endif()
endif()
message(STATUS "libtorch ${torch_version} in ${torch_root} (CUDA ${ORTHANT_HAS_CUDA}, NCCL ${ORTHANT_HAS_NCCL})")
