#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/scan.hpp>

#include "codecs/pickle/pickle.hpp"
#include "codecs/zip/zip.hpp"

namespace tenfold {

/// The expected content of bytes, from their context.
enum class ScanHint : std::uint8_t {
  none,
  pickle,   ///< a file or record with the name of a pickle, such as "data.pkl"
  tensor,   ///< a file of numbers, which may start with a magic number by chance: zip archives are
            ///< scanned, tar archives with a correct checksum are reported, and other archives are
            ///< ignored; other bytes count as a pickle only if unpickling them imports something
  storage,  ///< a record of numbers, which is never opened as a file: archives are not reported,
            ///< and pickles of protocols 0 and 1 are not looked for
};

/// The hint for a file or record of that name.
ScanHint hint_of_name(std::string_view name);

/// Finds the pickles in bytes and in archives inside them, and reports content that is not scanned.
/// `where` describes which part of the file the bytes are, such as `record "data.pkl"`; "" for the
/// whole file. The locations of findings contain it.
class ByteScanner {
 public:
  /// `max_following`: the greatest number of pickles in one file that directly follow another
  /// pickle and are scanned. A record that deflates to 1 MB can contain 500 million such pickles,
  /// whose scan takes minutes.
  explicit ByteScanner(std::uint64_t max_following = 10'000'000) : max_following_(max_following) {}

  /// Starts the scan of the file at `path`. Locations of findings begin with `shown`, which is ""
  /// if there is only one file.
  void enter(std::string path, std::string shown);

  /// Scans a pickle, a zip archive and the archives nested in it (up to 8 levels in all), a .npy
  /// file of objects, or other bytes. Throws Error(corrupt) and Error(unsupported) for an
  /// unreadable archive, but reports unreadable archives inside an archive as findings.
  void any(std::string_view bytes, const std::string& where, ScanHint hint);

  /// Scans consecutive zip archives whose offsets are not known. Reports bytes outside of archives,
  /// and passes them to guess(). Returns false, without findings, if it finds no archive.
  bool archives(std::string_view bytes, const std::string& where);

  /// Scans bytes as a pickle of any protocol, if unpickling them could import something.
  void guess(std::string_view bytes, const std::string& where);

  /// Adds a finding at the byte `at` of the bytes at `where`. After a million findings, only adds
  /// one more, with the greatest risk of all further ones.
  void add(std::string what, ScanRisk risk, const std::string& where, std::uint64_t at);

  /// Adds a finding for an archive that cannot be read because of `error`. Rethrows `error` unless
  /// its code is corrupt or unsupported.
  void add(const Error& error, const std::string& where);

  /// The report of all files. The scanner cannot be used afterwards.
  ScanReport take() { return std::move(report_); }

 private:
  class ZipEnds;

  void pickles(std::string_view bytes, const std::string& where, bool is_pickle);
  bool packed(std::string_view bytes, const std::string& where, ScanHint hint);
  void zip(std::string_view bytes, const std::string& where);
  void no_archive(std::string_view bytes, const std::string& where, std::uint64_t at);
  std::size_t archive_bytes(std::string_view bytes, std::size_t begin, ZipEnds& ends,
                            const std::string& where);
  void globals(const codecs::PickleGraph& graph, const std::string& where, std::uint64_t at);
  static codecs::ZipDirectory directory_of(const codecs::ZipInput& input);
  codecs::ZipInput input_of(std::string_view bytes, const std::string& where) const;

  std::uint64_t max_following_;
  ScanReport report_;
  std::string path_;
  std::string shown_;
  int depth_ = 0;                     ///< nesting depth of the current archive
  std::uint64_t inflated_bytes_ = 0;  ///< total of all nested archives in the current file
  std::uint64_t num_following_ = 0;   ///< pickles that directly follow another, in this file
  std::uint64_t num_tries_ = 0;       ///< number of attempts by archive_bytes(), for all files
};

}  // namespace tenfold
