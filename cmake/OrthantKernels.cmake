# CUDA sources that a layer carries as text: orthant_kernels(nn norm.cu …) adds a C++ file that defines each as a
# std::string_view orthant::cuda::sources::norm; a line that includes a .inc beside it is that part. Run as a script it
# writes that file:
#   cmake -DFOLDER=… -DFILES="norm.cu;rotary.cu" -DOUTPUT=out.cpp -P OrthantKernels.cmake
if(CMAKE_SCRIPT_MODE_FILE)
  set(text "// Written by cmake/OrthantKernels.cmake.\n#include <string_view>\n\nnamespace orthant::cuda::sources {\n\n")
  foreach(file IN LISTS FILES)
    get_filename_component(name ${file} NAME_WE)
    file(READ ${FOLDER}/${file} content)
    if(content MATCHES "#include \"([a-z_]+\\.inc)\"")
      get_filename_component(beside ${file} DIRECTORY)
      file(READ ${FOLDER}/${beside}/${CMAKE_MATCH_1} part)
      string(REPLACE "${CMAKE_MATCH_0}" "${part}" content "${content}")
    endif()
    string(LENGTH "${content}" length)
    string(APPEND text "extern const std::string_view ${name};\nconst std::string_view ${name} =\n")
    # Compilers limit the length of one literal: long texts are several, side by side.
    set(begin 0)
    while(begin LESS length)
      string(SUBSTRING "${content}" ${begin} 8000 part)
      string(APPEND text "R\"orthant(${part})orthant\"\n")
      math(EXPR begin "${begin} + 8000")
    endwhile()
    string(APPEND text ";\n\n")
  endforeach()
  string(APPEND text "}  // namespace orthant::cuda::sources\n")
  file(WRITE ${OUTPUT} "${text}")
  return()
endif()

set(orthant_kernels_script ${CMAKE_CURRENT_LIST_FILE})
set_property(GLOBAL PROPERTY ORTHANT_KERNEL_SOURCES "")
function(orthant_kernels layer)
  if(NOT TARGET orthant_${layer})
    return()
  endif()
  set(output ${CMAKE_CURRENT_BINARY_DIR}/kernel_sources.cpp)
  set(paths ${ARGN})
  list(TRANSFORM paths PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  file(GLOB_RECURSE parts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.inc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_CURRENT_SOURCE_DIR} "-DFILES=${ARGN}" -DOUTPUT=${output}
      -P ${orthant_kernels_script}
    DEPENDS ${paths} ${parts} ${orthant_kernels_script} VERBATIM)
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
  target_sources(orthant_${layer} PRIVATE ${output})
  set_property(GLOBAL APPEND PROPERTY ORTHANT_KERNEL_SOURCES ${paths})
endfunction()
