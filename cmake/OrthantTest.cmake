# orthant_test(comm [TORCH] SOURCES checked_test.cpp … LABELS torch): one program with all these files, test_comm (PROGRAM
# names another), and for each file a ctest entry that runs its tests in a process of their own, comm.checked
# (plan.search for search/search_test.cpp).
# A skipped test fails: what cannot run on a machine is left out by label and counted, see tools/run_tests.
#
# Files are compiled in batches as those of layers are; each has a namespace named after it, so that names may repeat.
# Tests are compiled in half the time because nothing optimises them, with precompiled headers of their own; what they
# test is compiled like the product. OPTIMIZED: so is the test, for those that compute much themselves.
set(orthant_test_options $<$<CONFIG:Release>:-O0>)
if(ORTHANT_PCH)
  orthant_make_pch(pure_test_pch GTest::gtest)
  target_compile_options(orthant_pure_test_pch PRIVATE ${orthant_test_options})
endif()
if(ORTHANT_TORCH AND ORTHANT_PCH)
  orthant_make_pch(torch_test_pch orthant_torch GTest::gtest)
  target_compile_options(orthant_torch_test_pch PRIVATE ${orthant_test_options})
endif()

# Tests labelled nvrtc compile kernels where there is no card: ORTHANT_NVRTC in their environment names the compiler's library,
# libtorch's own where it has CUDA, else that of tools/requirements.txt. The library opens libnvrtc-builtins.so beside it by
# name only: who loads it by its path loads that one first.
set(nvrtc_folders ${torch_root}/../nvidia/cu13/lib)
foreach(venv .venv .venv-cuda)
  file(GLOB found ${CMAKE_SOURCE_DIR}/${venv}/lib/python3*/site-packages/nvidia/cu13/lib)
  list(APPEND nvrtc_folders ${found})
endforeach()
find_file(ORTHANT_NVRTC libnvrtc.so.13 PATHS ${nvrtc_folders} $ENV{CUDA_HOME}/lib64 /usr/local/cuda/lib64 NO_DEFAULT_PATH)

# Sets the environment of a test: orthant_test_environment(name "labels" VARIABLE=value …).
function(orthant_test_environment name labels)
  set(variables ${ARGN})
  if("nvrtc" IN_LIST labels AND ORTHANT_NVRTC)
    list(APPEND variables ORTHANT_NVRTC=${ORTHANT_NVRTC})
  endif()
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${variables}")
endfunction()

# Links these layers, and those they depend on, before the test's own files. Of an inline function in several files the
# linker takes the first, and the layers' are optimised: tests would slow down the product's containers and strings.
function(orthant_link_layers_first target)
  get_property(layers GLOBAL PROPERTY ORTHANT_LAYERS)
  set(ahead ${ARGN})
  set(found)
  while(ahead)
    list(POP_FRONT ahead next)
    if(next IN_LIST layers AND NOT next IN_LIST found)
      list(APPEND found ${next})
      get_target_property(libraries ${next} INTERFACE_LINK_LIBRARIES)
      list(APPEND ahead ${libraries})
    endif()
  endwhile()
  list(TRANSFORM found REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  target_link_options(${target} PRIVATE LINKER:--whole-archive ${found} LINKER:--no-whole-archive)
endfunction()

# tools/run_tests counts in halves of a core: a test takes a whole one, these, which mostly wait, take a half.
function(orthant_tests_wait)
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS 1)
endfunction()

function(orthant_test name)
  cmake_parse_arguments(test "TORCH;OPTIMIZED" "TIMEOUT;PROGRAM" "SOURCES;LABELS;DEPENDS;DEFINES" ${ARGN})
  if(test_TORCH AND NOT ORTHANT_TORCH)
    return()
  endif()
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 180)  # a hang ends here; the longest takes a minute where three tests share two cores
  endif()
  if(NOT test_PROGRAM)
    set(test_PROGRAM test_${name})
  endif()
  set(target ${test_PROGRAM})
  add_executable(${target} ${test_SOURCES} ${CMAKE_SOURCE_DIR}/tests/test_main.cpp)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(ORTHANT_BATCHES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE ${test_DEFINES})
  if(NOT test_OPTIMIZED)
    target_compile_options(${target} PRIVATE ${orthant_test_options})
  endif()
  list(TRANSFORM test_DEPENDS PREPEND orthant_)
  target_link_libraries(${target} PRIVATE ${test_DEPENDS})
  orthant_link_layers_first(${target} ${test_DEPENDS})
  target_link_libraries(${target} PRIVATE orthant_flags fmt::fmt nlohmann_json::nlohmann_json GTest::gtest)
  if(test_TORCH)
    orthant_use_torch(${target} torch_test_pch)
  elseif(ORTHANT_PCH AND NOT test_OPTIMIZED)
    orthant_reuse_pch(${target} pure_test_pch)
  endif()
  foreach(source IN LISTS test_SOURCES)
    get_filename_component(topic ${source} NAME)
    string(REGEX REPLACE "_test.cpp$" "" topic ${topic})
    add_test(NAME ${name}.${topic} COMMAND ${target} ${topic})
    set_tests_properties(${name}.${topic} PROPERTIES LABELS "${test_LABELS}" TIMEOUT ${test_TIMEOUT} PROCESSORS 2
      FAIL_REGULAR_EXPRESSION "  SKIPPED ")
    orthant_test_environment(${name}.${topic} "${test_LABELS}" OMP_NUM_THREADS=1)  # ctest fills the cores
  endforeach()
endfunction()

# Tests of a program that run on the emulated card (tests/cuda/emulated_card): orthant_on_emulated_card(program name …).
# orthant_emulated_test(operations_emulated PROGRAM test_operations_device TOPICS device_norm …) adds entries that run a program's tests of
# kernels a second time.
function(orthant_on_emulated_card program)
  add_dependencies(${program} emulated_driver emulated_nvrtc)
  set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT ORTHANT_EMULATED_CARD=${CMAKE_BINARY_DIR}/tests/emulated_card
    ASAN_OPTIONS=detect_stack_use_after_return=0)  # a second stack for each fiber, made anew with each block
endfunction()

function(orthant_emulated_test name)
  cmake_parse_arguments(test "" "PROGRAM" "TOPICS" ${ARGN})
  if(NOT TARGET ${test_PROGRAM})
    return()
  endif()
  foreach(topic IN LISTS test_TOPICS)
    add_test(NAME ${name}.${topic} COMMAND ${test_PROGRAM} ${topic})
    set_tests_properties(${name}.${topic} PROPERTIES LABELS torch TIMEOUT 3600 PROCESSORS 2  # of all shapes, when asked for
      FAIL_REGULAR_EXPRESSION "  SKIPPED ")
    orthant_test_environment(${name}.${topic} torch OMP_NUM_THREADS=1)
    orthant_on_emulated_card(${test_PROGRAM} ${name}.${topic})
  endforeach()
endfunction()
