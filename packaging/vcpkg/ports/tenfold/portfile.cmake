# An overlay port builds from this repository (packaging/README.md). For vcpkg's registry, replace
# this line by vcpkg_from_github() of a release.
set(SOURCE_PATH ${CMAKE_CURRENT_LIST_DIR}/../../../..)

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS FEATURES cli TENFOLD_CLI)

vcpkg_cmake_configure(
  SOURCE_PATH ${SOURCE_PATH}
  OPTIONS
    ${FEATURE_OPTIONS}
    -DTENFOLD_DEPS=system
    -DTENFOLD_INSTALL=ON
    -DTENFOLD_PYTHON=OFF
    -DTENFOLD_TESTS=OFF
    -DTENFOLD_WERROR=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/tenfold)
vcpkg_fixup_pkgconfig()
if("cli" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES tenfold AUTO_CLEAN)
endif()

file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/debug/include ${CURRENT_PACKAGES_DIR}/debug/share)
file(INSTALL ${CMAKE_CURRENT_LIST_DIR}/usage DESTINATION ${CURRENT_PACKAGES_DIR}/share/${PORT})
file(GLOB notices ${SOURCE_PATH}/licenses/*.txt)
vcpkg_install_copyright(FILE_LIST ${SOURCE_PATH}/LICENSE ${SOURCE_PATH}/NOTICE ${notices})
