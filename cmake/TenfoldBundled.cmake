# Pinned sources of the libraries, for TENFOLD_DEPS=bundled. Only their sources are taken, not their
# build files: each is compiled here into an object library that becomes part of libtenfold, so that
# nothing of theirs is installed or exported.
#
# Without a network, unpack the archives and pass -D TENFOLD_BUNDLED_SOURCES=<folder>, which holds
# one folder for each library (xxhash, libdeflate, zlib, zstd, bzip2, xz, fmt, cli11), or CMake's own
# -D FETCHCONTENT_SOURCE_DIR_TENFOLD_ZSTD=<folder> for one of them.
include(FetchContent)
set(TENFOLD_BUNDLED_SOURCES "" CACHE PATH "Folder with the unpacked sources of bundled libraries")

set(tenfold_xxhash_url https://github.com/Cyan4973/xxHash/archive/refs/tags/v0.8.3.tar.gz)
set(tenfold_xxhash_sha256 aae608dfe8213dfd05d909a57718ef82f30722c392344583d3f39050c7f29a80)
set(tenfold_libdeflate_url
  https://github.com/ebiggers/libdeflate/releases/download/v1.23/libdeflate-1.23.tar.gz)
set(tenfold_libdeflate_sha256 1ab18349b9fb0ce8a0ca4116bded725be7dcbfa709e19f6f983d99df1fb8b25f)
set(tenfold_zlib_url https://github.com/madler/zlib/releases/download/v1.3.1/zlib-1.3.1.tar.gz)
set(tenfold_zlib_sha256 9a93b2b7dfdac77ceba5a558a580e74667dd6fede4585b91eefb60f03b72df23)
set(tenfold_zstd_url
  https://github.com/facebook/zstd/releases/download/v1.5.7/zstd-1.5.7.tar.gz)
set(tenfold_zstd_sha256 eb33e51f49a15e023950cd7825ca74a4a2b43db8354825ac24fc1b7ee09e6fa3)
set(tenfold_bzip2_url https://sourceware.org/pub/bzip2/bzip2-1.0.8.tar.gz)
set(tenfold_bzip2_sha256 ab5a03176ee106d3f0fa90e381da478ddae405918153cca248e682cd0c4a2269)
set(tenfold_xz_url
  https://github.com/tukaani-project/xz/releases/download/v5.8.1/xz-5.8.1.tar.xz)
set(tenfold_xz_sha256 0b54f79df85912504de0b14aec7971e3f964491af1812d83447005807513cd9e)
set(tenfold_fmt_url https://github.com/fmtlib/fmt/archive/refs/tags/10.1.1.tar.gz)
set(tenfold_fmt_sha256 78b8c0a72b1c35e4443a7e308df52498252d1cefc2b08c9a97bc9ee6cfe61f8b)
set(tenfold_cli11_url https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.1.tar.gz)
set(tenfold_cli11_sha256 73b7ec52261ce8fe980a29df6b4ceb66243bb0b779451dbd3d014cfec9fdbb58)

# tenfold_fetch(name result): sets `result` to the folder with a library's sources, which are
# downloaded unless TENFOLD_BUNDLED_SOURCES has them.
function(tenfold_fetch name result)
  if(TENFOLD_BUNDLED_SOURCES)
    string(TOUPPER TENFOLD_${name} upper)
    if(NOT IS_DIRECTORY ${TENFOLD_BUNDLED_SOURCES}/${name})
      message(FATAL_ERROR "TENFOLD_BUNDLED_SOURCES (${TENFOLD_BUNDLED_SOURCES}) has no folder "
        "${name}: unpack ${tenfold_${name}_url} there")
    endif()
    set(FETCHCONTENT_SOURCE_DIR_${upper} ${TENFOLD_BUNDLED_SOURCES}/${name})
  endif()
  # SOURCE_SUBDIR names a folder that does not exist, so that the library's CMakeLists.txt is not run.
  FetchContent_Declare(tenfold_${name}
    URL ${tenfold_${name}_url}
    URL_HASH SHA256=${tenfold_${name}_sha256}
    DOWNLOAD_EXTRACT_TIMESTAMP OFF
    SOURCE_SUBDIR not-a-project)
  FetchContent_MakeAvailable(tenfold_${name})
  set(${result} ${tenfold_${name}_SOURCE_DIR} PARENT_SCOPE)
endfunction()

# tenfold_bundle(name include_folder source...): adds two targets. tenfold_<name> has the include
# folder. tenfold_<name>_objects has the objects, which src/CMakeLists.txt adds to libtenfold.
function(tenfold_bundle name include_folder)
  if(NOT ARGN)
    message(FATAL_ERROR "${include_folder} has no sources of ${name}")
  endif()
  add_library(tenfold_${name}_objects OBJECT ${ARGN})
  set_target_properties(tenfold_${name}_objects PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden)
  target_include_directories(tenfold_${name}_objects PRIVATE ${include_folder})
  target_compile_options(tenfold_${name}_objects PRIVATE -w)
  add_library(tenfold_${name} INTERFACE)
  target_include_directories(tenfold_${name} SYSTEM INTERFACE ${include_folder})
endfunction()

# The functions below are macros so that enable_language() runs in the project's own scope.
macro(tenfold_bundle_libdeflate)
  enable_language(C)
  tenfold_fetch(libdeflate tenfold_folder)
  file(GLOB tenfold_sources ${tenfold_folder}/lib/*.c ${tenfold_folder}/lib/*/cpu_features.c)
  tenfold_bundle(libdeflate ${tenfold_folder} ${tenfold_sources})
  # Without this macro, libdeflate enables the feature evex512 for its AVX-512 functions, which
  # clang 22 and g++ 16 no longer know. Older compilers enable it together with AVX-512.
  target_compile_definitions(tenfold_libdeflate_objects PRIVATE __EVEX512__)
endmacro()

# zlib: compiles the sources of inflate only, because nothing is compressed with zlib.
macro(tenfold_bundle_zlib)
  enable_language(C)
  tenfold_fetch(zlib tenfold_folder)
  set(tenfold_sources adler32 crc32 inffast inflate inftrees zutil)
  list(TRANSFORM tenfold_sources REPLACE "(.+)" "${tenfold_folder}/\\1.c")
  tenfold_bundle(zlib ${tenfold_folder} ${tenfold_sources})
endmacro()

# zstd: compiles the sources of decompression only, without assembly (ZSTD_DISABLE_ASM).
macro(tenfold_bundle_zstd)
  enable_language(C)
  tenfold_fetch(zstd tenfold_folder)
  file(GLOB tenfold_sources ${tenfold_folder}/lib/common/*.c ${tenfold_folder}/lib/decompress/*.c)
  tenfold_bundle(zstd ${tenfold_folder}/lib ${tenfold_sources})
  target_compile_definitions(tenfold_zstd_objects PRIVATE
    ZSTD_DISABLE_ASM ZSTD_LEGACY_SUPPORT=0 "ZSTDLIB_VISIBLE=" "ZSTDERRORLIB_VISIBLE=")
endmacro()

# bzip2: compiles the whole library, because one source file has both compression and decompression.
macro(tenfold_bundle_bzip2)
  enable_language(C)
  tenfold_fetch(bzip2 tenfold_folder)
  set(tenfold_sources blocksort bzlib compress crctable decompress huffman randtable)
  list(TRANSFORM tenfold_sources REPLACE "(.+)" "${tenfold_folder}/\\1.c")
  tenfold_bundle(bzip2 ${tenfold_folder} ${tenfold_sources})
endmacro()

# xz: compiles liblzma's decoder of .xz streams, with the filters and checksums of the format.
macro(tenfold_bundle_xz)
  enable_language(C)
  tenfold_fetch(xz tenfold_folder)
  set(tenfold_filters x86 arm armthumb arm64 ia64 powerpc riscv sparc)
  set(tenfold_sources
    check/check check/crc32_fast check/crc64_fast check/sha256
    common/block_decoder common/block_header_decoder common/block_util common/common
    common/filter_common common/filter_decoder common/filter_flags_decoder common/index_hash
    common/stream_decoder common/stream_flags_common common/stream_flags_decoder
    common/vli_decoder common/vli_size
    delta/delta_common delta/delta_decoder lz/lz_decoder lzma/lzma2_decoder lzma/lzma_decoder
    simple/simple_coder simple/simple_decoder)
  foreach(tenfold_filter IN LISTS tenfold_filters)
    list(APPEND tenfold_sources simple/${tenfold_filter})
  endforeach()
  list(TRANSFORM tenfold_sources REPLACE "(.+)" "${tenfold_folder}/src/liblzma/\\1.c")
  tenfold_bundle(xz ${tenfold_folder}/src/liblzma/api ${tenfold_sources})
  foreach(tenfold_part check common delta lz lzma rangecoder simple)
    target_include_directories(tenfold_xz_objects PRIVATE
      ${tenfold_folder}/src/liblzma/${tenfold_part})
  endforeach()
  target_include_directories(tenfold_xz_objects PRIVATE ${tenfold_folder}/src/common)
  target_compile_definitions(tenfold_xz_objects PRIVATE
    HAVE_STDBOOL_H HAVE_STDINT_H HAVE_INTTYPES_H HAVE_VISIBILITY=0
    HAVE_DECODERS HAVE_DECODER_LZMA1 HAVE_DECODER_LZMA2 HAVE_DECODER_DELTA
    HAVE_CHECK_CRC32 HAVE_CHECK_CRC64 HAVE_CHECK_SHA256)
  foreach(tenfold_filter IN LISTS tenfold_filters)
    string(TOUPPER HAVE_DECODER_${tenfold_filter} tenfold_filter)
    target_compile_definitions(tenfold_xz_objects PRIVATE ${tenfold_filter})
  endforeach()
endmacro()
