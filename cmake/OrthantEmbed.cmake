# Files that a library carries with it. Run as a script it writes a C++ file that holds them:
#   cmake -DFOLDER=… -DFILES="a.json;b/c.json" -DOUTPUT=out.cpp -P OrthantEmbed.cmake
# Included, it offers orthant_embed(target folder), which adds that file for everything in the folder; the code reads
# it through the array `kEmbeddedFiles` in namespace orthant::embedded.
if(CMAKE_SCRIPT_MODE_FILE)
  set(text "// Written by cmake/OrthantEmbed.cmake.\n#include <array>\n#include <string_view>\n#include <utility>\n\n")
  string(APPEND text "namespace orthant::embedded {\n\n")
  list(LENGTH FILES count)
  string(APPEND text "using File = std::pair<std::string_view, std::string_view>;\n")
  string(APPEND text "extern const File* const kFiles;\nextern const unsigned long kNumFiles;\n\n")
  string(APPEND text "static const File kTexts[] = {\n")
  foreach(file IN LISTS FILES)
    file(READ ${FOLDER}/${file} content)
    # Compilers limit the length of one literal: long texts are several, side by side.
    string(LENGTH "${content}" length)
    string(APPEND text "{\"${file}\", {")
    set(begin 0)
    set(literal "")
    while(begin LESS length)
      string(SUBSTRING "${content}" ${begin} 8000 part)
      string(APPEND literal "R\"orthant(${part})orthant\"\n")
      math(EXPR begin "${begin} + 8000")
    endwhile()
    string(APPEND text "${literal}}},\n")
  endforeach()
  string(APPEND text "};\nconst File* const kFiles = kTexts;\nconst unsigned long kNumFiles = ${count};\n\n")
  string(APPEND text "}  // namespace orthant::embedded\n")
  file(WRITE ${OUTPUT} "${text}")
  return()
endif()

set(orthant_embed_script ${CMAKE_CURRENT_LIST_FILE})
function(orthant_embed target folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*)
  list(SORT files)
  list(TRANSFORM files PREPEND ${folder}/ OUTPUT_VARIABLE paths)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_files.cpp)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} "-DFILES=${files}" -DOUTPUT=${output} -P ${orthant_embed_script}
    DEPENDS ${paths} ${orthant_embed_script} VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
