# Installs the headers, the static or the shared library, and the files for `find_package(tenfold)`
# and `pkg-config tenfold`. A program that links the static library also links libdeflate, zlib,
# zstd, bzip2 and xz, except those that are bundled. The installed package searches for them again,
# so no path of this machine is installed. The shared library needs no such search.
include(CMakePackageConfigHelpers)

set(tenfold_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tenfold)
set(tenfold_package_needs "${TENFOLD_LINKED}")
if(BUILD_SHARED_LIBS)
  set(tenfold_package_needs "")
endif()

install(TARGETS tenfold EXPORT tenfold-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
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
  DESTINATION ${tenfold_package_dir} COMPONENT cpp)
if(tenfold_package_needs)
  install(FILES
    ${PROJECT_SOURCE_DIR}/cmake/TenfoldLibdeflate.cmake
    ${PROJECT_SOURCE_DIR}/cmake/TenfoldStreams.cmake
    DESTINATION ${tenfold_package_dir} COMPONENT cpp)
endif()

if(TENFOLD_CLI)
  # The program finds the shared library relative to its own folder, so an installed tree may be
  # moved.
  if(BUILD_SHARED_LIBS AND NOT CMAKE_INSTALL_RPATH)
    cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR
      BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR} OUTPUT_VARIABLE tenfold_rpath)
    set_property(TARGET tenfold_program PROPERTY INSTALL_RPATH "$ORIGIN/${tenfold_rpath}")
  endif()
  install(TARGETS tenfold_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cpp)
endif()

# The .pc file gives the prefix relative to its own folder, for the same reason.
set(tenfold_pc_requires "")
set(tenfold_pc_private "")
foreach(name IN LISTS tenfold_package_needs)
  if(name STREQUAL "bzip2")
    set(tenfold_pc_private " -lbz2")  # Debian's has no .pc file
    continue()
  endif()
  string(REPLACE "zstd" "libzstd" module ${name})
  string(REPLACE "xz" "liblzma" module ${module})
  list(APPEND tenfold_pc_requires ${module})
endforeach()
list(JOIN tenfold_pc_requires ", " tenfold_pc_requires)
set(tenfold_pc_cflags "")
set(tenfold_pc_libs "-pthread -lstdc++")
if(BUILD_SHARED_LIBS)
  set(tenfold_pc_cflags " -DTENFOLD_SHARED")
  set(tenfold_pc_libs "")
endif()
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE tenfold_pc_prefix)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/tenfold.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@tenfold_pc_prefix@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@

Name: tenfold
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Requires.private: @tenfold_pc_requires@
Cflags: -I${includedir}@tenfold_pc_cflags@
Libs: -L${libdir} -ltenfold
Libs.private: @tenfold_pc_libs@@tenfold_pc_private@
]])
install(FILES ${PROJECT_BINARY_DIR}/tenfold.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cpp)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT cpp)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/licenses
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT cpp)
