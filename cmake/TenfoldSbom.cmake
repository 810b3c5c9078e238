# TENFOLD_SBOM: a CycloneDX file that lists the libraries of the Python extension. Their versions
# come from the headers, from find_package() or from the URL of the pinned sources, so that they are
# right for every value of TENFOLD_DEPS.

# tenfold_header_version(result file macro...): sets `result` to the version in a header. One macro
# has the whole version as a string, or several have one number each.
function(tenfold_header_version result file)
  set(parts "")
  foreach(macro IN LISTS ARGN)
    file(STRINGS ${file} line REGEX "^ *#define ${macro}[ \t]" LIMIT_COUNT 1)
    string(REGEX REPLACE "^ *#define ${macro}[ \t]+\"?([0-9.]+).*$" "\\1" part "${line}")
    list(APPEND parts "${part}")
  endforeach()
  list(JOIN parts "." version)
  if(NOT version MATCHES "^[0-9]+([.][0-9]+)+$")
    message(FATAL_ERROR "${file}: no version in ${ARGN}")
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()

# bzlib.h has its version only in a comment: "bzip2/libbzip2 version 1.0.8 of 13 July 2019".
function(tenfold_bzip2_version result file)
  file(STRINGS ${file} line REGEX "libbzip2 version [0-9.]+ of" LIMIT_COUNT 1)
  string(REGEX REPLACE "^.*version ([0-9.]+) of.*$" "\\1" version "${line}")
  if(NOT version MATCHES "^[0-9]+([.][0-9]+)+$")
    message(FATAL_ERROR "${file}: no version in its first comment")
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()

set(tenfold_components "")
# tenfold_component(name version license purl): adds a library to the list.
function(tenfold_component name version license purl)
  if(license MATCHES " WITH ")
    set(license "{\"expression\": \"${license}\"}")
  else()
    set(license "{\"license\": {\"id\": \"${license}\"}}")
  endif()
  list(APPEND tenfold_components "    {\"type\": \"library\", \"bom-ref\": \"${name}\", \"name\": \"${name}\", \
\"version\": \"${version}\", \"licenses\": [${license}], \"purl\": \"${purl}@${version}\"}")
  set(tenfold_components "${tenfold_components}" PARENT_SCOPE)
endfunction()

get_target_property(tenfold_folder tenfold_xxhash INTERFACE_INCLUDE_DIRECTORIES)
tenfold_header_version(tenfold_version ${tenfold_folder}/xxhash.h
  XXH_VERSION_MAJOR XXH_VERSION_MINOR XXH_VERSION_RELEASE)
tenfold_component(xxHash ${tenfold_version} BSD-2-Clause pkg:github/Cyan4973/xxHash)

get_target_property(tenfold_folder tenfold_libdeflate INTERFACE_INCLUDE_DIRECTORIES)
tenfold_header_version(tenfold_version ${tenfold_folder}/libdeflate.h LIBDEFLATE_VERSION_STRING)
tenfold_component(libdeflate ${tenfold_version} MIT pkg:github/ebiggers/libdeflate)

get_target_property(tenfold_folder tenfold_zlib INTERFACE_INCLUDE_DIRECTORIES)
tenfold_header_version(tenfold_version ${tenfold_folder}/zlib.h ZLIB_VERSION)
tenfold_component(zlib ${tenfold_version} Zlib pkg:github/madler/zlib)

get_target_property(tenfold_folder tenfold_zstd INTERFACE_INCLUDE_DIRECTORIES)
tenfold_header_version(tenfold_version ${tenfold_folder}/zstd.h
  ZSTD_VERSION_MAJOR ZSTD_VERSION_MINOR ZSTD_VERSION_RELEASE)
tenfold_component(zstd ${tenfold_version} BSD-3-Clause pkg:github/facebook/zstd)

get_target_property(tenfold_folder tenfold_bzip2 INTERFACE_INCLUDE_DIRECTORIES)
tenfold_bzip2_version(tenfold_version ${tenfold_folder}/bzlib.h)
tenfold_component(bzip2 ${tenfold_version} bzip2-1.0.6 pkg:generic/bzip2)

get_target_property(tenfold_folder tenfold_xz INTERFACE_INCLUDE_DIRECTORIES)
tenfold_header_version(tenfold_version ${tenfold_folder}/lzma/version.h
  LZMA_VERSION_MAJOR LZMA_VERSION_MINOR LZMA_VERSION_PATCH)
tenfold_component(xz ${tenfold_version} 0BSD pkg:github/tukaani-project/xz)

# The headers of fmt 10.1.1 have the version 10.1.0, so the version is taken from the URL.
if("fmt" IN_LIST TENFOLD_BUNDLED)
  string(REGEX MATCH "[0-9]+[.][0-9]+[.][0-9]+" fmt_VERSION ${tenfold_fmt_url})
endif()
tenfold_component(fmt ${fmt_VERSION} MIT pkg:github/fmtlib/fmt)

if("cli11" IN_LIST TENFOLD_BUNDLED)
  tenfold_header_version(CLI11_VERSION ${tenfold_cli11_dir}/include/CLI/Version.hpp CLI11_VERSION)
endif()
tenfold_component(CLI11 ${CLI11_VERSION} BSD-3-Clause pkg:github/CLIUtils/CLI11)

tenfold_component(nanobind ${nanobind_VERSION} BSD-3-Clause pkg:pypi/nanobind)

# robin-map is part of nanobind's sources, or is installed.
get_target_property(tenfold_folder tsl::robin_map INTERFACE_INCLUDE_DIRECTORIES)
tenfold_header_version(tenfold_version ${tenfold_folder}/tsl/robin_growth_policy.h
  TSL_RH_VERSION_MAJOR TSL_RH_VERSION_MINOR TSL_RH_VERSION_PATCH)
tenfold_component(robin-map ${tenfold_version} MIT pkg:github/Tessil/robin-map)

# zig.cmake sets this variable: LLVM's libc++, libc++abi, libunwind and compiler-rt are linked.
if(TENFOLD_STATIC_RUNTIME)
  string(REGEX MATCH "^[0-9.]+" tenfold_version ${CMAKE_CXX_COMPILER_VERSION})
  tenfold_component(${TENFOLD_STATIC_RUNTIME} ${tenfold_version}
    "Apache-2.0 WITH LLVM-exception" pkg:github/llvm/llvm-project)
endif()

set(TENFOLD_SBOM ${PROJECT_BINARY_DIR}/tenfold.cdx.json)
list(JOIN tenfold_components ",\n" tenfold_components)
file(CONFIGURE OUTPUT ${TENFOLD_SBOM} @ONLY CONTENT [[
{
  "bomFormat": "CycloneDX",
  "specVersion": "1.6",
  "version": 1,
  "metadata": {
    "component": {"type": "library", "bom-ref": "tenfold", "name": "tenfold",
      "version": "@PROJECT_VERSION@", "licenses": [{"license": {"id": "Apache-2.0"}}],
      "purl": "pkg:pypi/tenfold@@PROJECT_VERSION@"}
  },
  "components": [
@tenfold_components@
  ]
}
]])
