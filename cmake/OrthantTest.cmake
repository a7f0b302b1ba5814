# orthant_test(comm [TORCH] SOURCES checked_test.cpp … LABELS torch): each source is a program and a ctest entry of its own,
# test_comm_checked and comm.checked, so its cases share the 0.3 s that loading libtorch takes.
# A skipped test fails: what cannot run on a machine is left out by label and counted, see tools/run_tests.
function(orthant_test name)
  cmake_parse_arguments(test "TORCH" "TIMEOUT" "SOURCES;LABELS;DEPENDS;DEFINES" ${ARGN})
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
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # g++ takes a precompiled header with the same options only
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)  # what is tested is compiled with more
    endif()
    foreach(dependency IN LISTS test_DEPENDS)
      target_link_libraries(${target} PRIVATE orthant_${dependency})
    endforeach()
    target_link_libraries(${target} PRIVATE orthant_flags fmt::fmt nlohmann_json::nlohmann_json GTest::gtest GTest::gtest_main)
    if(test_TORCH)
      orthant_use_torch(${target})
    elseif(ORTHANT_PCH)
      orthant_reuse_pch(${target} pure_pch)
    endif()
    add_test(NAME ${name}.${topic} COMMAND ${target})
    set_tests_properties(${name}.${topic} PROPERTIES LABELS "${test_LABELS}" TIMEOUT ${test_TIMEOUT}
      FAIL_REGULAR_EXPRESSION "  SKIPPED " ENVIRONMENT OMP_NUM_THREADS=1)  # ctest fills the cores
  endforeach()
endfunction()
