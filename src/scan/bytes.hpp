#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/scan.hpp>

#include "codecs/pickle/pickle.hpp"
#include "codecs/zip/zip.hpp"

namespace tenfold {

/// What is known of bytes before they are looked at.
enum class ScanHint : std::uint8_t {
  none,
  pickle,   ///< named as one
  tensor,   ///< a file of numbers, which may begin with the mark of anything: a pickle counts only
            ///< if it imports something
  storage,  ///< a record of numbers, which nobody opens as a file: archives do not count either
};

/// Of a file's or record's name.
ScanHint hint_of_name(std::string_view name);

/// Finds the pickles in bytes and in what is packed in them, and says so of what it does not look
/// into. `where` begins the place of each finding.
class ByteScanner {
 public:
  /// What is looked at from here on is in the file at `path`; places begin with `shown`, "" for the
  /// only file.
  void enter(std::string path, std::string shown);

  /// A pickle, an archive of any depth, a .npy file of objects, or none of these. Throws
  /// Error(corrupt) and Error(unsupported) for an archive that cannot be read; those in it are
  /// findings.
  void any(std::string_view bytes, const std::string& where, ScanHint hint);

  /// Archives one after the other, with nothing that tells where each begins. What is none is
  /// looked at as a pickle and named. False, and nothing found, if there is no archive.
  bool archives(std::string_view bytes, const std::string& where);

  /// A pickle of any protocol, if reading it might come to import something.
  void guess(std::string_view bytes, const std::string& where);

  void add(std::string what, ScanRisk risk, const std::string& where, std::uint64_t at);

  /// An archive that cannot be read. Throws on what says nothing of the bytes.
  void add(const Error& error, const std::string& where);

  ScanReport take() { return std::move(report_); }

 private:
  void pickles(std::string_view bytes, const std::string& where, bool surely);
  bool packed(std::string_view bytes, const std::string& where, ScanHint hint);
  void zip(std::string_view bytes, const std::string& where);
  void no_archive(std::string_view bytes, const std::string& where, std::uint64_t at);
  std::uint64_t archive_bytes(std::string_view bytes, const std::string& where);
  void globals(const codecs::PickleGraph& graph, const std::string& where, std::uint64_t at);
  static codecs::ZipDirectory directory_of(const codecs::ZipInput& input);
  codecs::ZipInput input_of(std::string_view bytes, const std::string& where) const;

  ScanReport report_;
  std::string path_;
  std::string shown_;
  int depth_ = 0;                     ///< of the archive that is looked into
  std::uint64_t inflated_bytes_ = 0;  ///< of archives in archives, all together
  std::uint64_t num_tries_ = 0;       ///< of archive_bytes()
};

}  // namespace tenfold
