# orthant_test(comm [TORCH] SOURCES checked_test.cpp … LABELS torch): each source is a program and a ctest entry of its own,
# test_comm_checked and comm.checked, so its cases share the 0.3 s that loading libtorch takes.
# A skipped test fails: what cannot run on a machine is left out by label and counted, see tools/run_tests.
#
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

function(orthant_test name)
  cmake_parse_arguments(test "TORCH;OPTIMIZED" "TIMEOUT" "SOURCES;LABELS;DEPENDS;DEFINES" ${ARGN})
  if(test_TORCH AND NOT ORTHANT_TORCH)
    return()
  endif()
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 60)
  endif()
  foreach(source IN LISTS test_SOURCES)
    string(REGEX REPLACE "_test.cpp$" "" topic ${source})
    set(target test_${name}_${topic})
    add_executable(${target} ${source})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
    target_compile_definitions(${target} PRIVATE ${test_DEFINES})
    if(NOT test_OPTIMIZED)
      target_compile_options(${target} PRIVATE ${orthant_test_options})
    endif()
    foreach(dependency IN LISTS test_DEPENDS)
      target_link_libraries(${target} PRIVATE orthant_${dependency})
    endforeach()
    target_link_libraries(${target} PRIVATE orthant_flags fmt::fmt nlohmann_json::nlohmann_json GTest::gtest GTest::gtest_main)
    if(test_TORCH)
      orthant_use_torch(${target} torch_test_pch)
    elseif(ORTHANT_PCH AND NOT test_OPTIMIZED)
      orthant_reuse_pch(${target} pure_test_pch)
    endif()
    add_test(NAME ${name}.${topic} COMMAND ${target})
    set_tests_properties(${name}.${topic} PROPERTIES LABELS "${test_LABELS}" TIMEOUT ${test_TIMEOUT}
      FAIL_REGULAR_EXPRESSION "  SKIPPED " ENVIRONMENT OMP_NUM_THREADS=1)  # ctest fills the cores
  endforeach()
endfunction()
