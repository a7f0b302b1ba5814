# cmake --install: the program, the layers as static libraries, their headers, and a package for find_package(orthant).
include(CMakePackageConfigHelpers)
get_property(layers GLOBAL PROPERTY ORTHANT_LAYERS)
list(REMOVE_ITEM layers orthant_cli)
if(NOT ORTHANT_TORCH)
  return()
endif()
add_library(orthant_orthant INTERFACE)
set_target_properties(orthant_orthant PROPERTIES EXPORT_NAME orthant)
target_link_libraries(orthant_orthant INTERFACE orthant_base orthant_mesh orthant_launch orthant_comm
  orthant_train orthant_generate)
install(TARGETS orthant_orthant ${layers} EXPORT orthantTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS orthant RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY src/orthant DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "folders.inc"
  PATTERN cli EXCLUDE PATTERN "*_state.h" EXCLUDE PATTERN "*_impl.h" EXCLUDE)
set(orthant_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/orthant)
install(EXPORT orthantTargets NAMESPACE orthant:: DESTINATION ${orthant_cmake_dir})
set(ORTHANT_TORCH_HINT ${torch_root})
configure_package_config_file(cmake/orthantConfig.cmake.in ${CMAKE_BINARY_DIR}/orthantConfig.cmake
  INSTALL_DESTINATION ${orthant_cmake_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/orthantConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/orthantConfig.cmake ${CMAKE_BINARY_DIR}/orthantConfigVersion.cmake
  cmake/OrthantTorch.cmake DESTINATION ${orthant_cmake_dir})
