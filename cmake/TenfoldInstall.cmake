# What `find_package(tenfold)` finds: the headers, the static library and tenfold::tenfold, which
# depends on threads, libdeflate, zlib and zstd (found anew: no path of this machine is installed).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(tenfold_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tenfold)

install(TARGETS tenfold EXPORT tenfold-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tenfold
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp
  FILES_MATCHING PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT cpp)
install(EXPORT tenfold-targets NAMESPACE tenfold::
  DESTINATION ${tenfold_package_dir} COMPONENT cpp)

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/tenfold-config.cmake.in
  ${PROJECT_BINARY_DIR}/tenfold-config.cmake
  INSTALL_DESTINATION ${tenfold_package_dir})
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tenfold-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/tenfold-config.cmake
  ${PROJECT_BINARY_DIR}/tenfold-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/TenfoldLibdeflate.cmake
  ${PROJECT_SOURCE_DIR}/cmake/TenfoldStreams.cmake
  DESTINATION ${tenfold_package_dir} COMPONENT cpp)

if(TENFOLD_CLI)
  install(TARGETS tenfold_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cpp)
endif()
