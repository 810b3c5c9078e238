#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/export.hpp>

namespace tenfold {

/// The risk of unpickling a global (a class or function that a pickle names).
enum class ScanRisk : std::uint8_t {
  safe,        ///< used by checkpoints of tensors
  suspicious,  ///< unknown; also content that cannot be read or is not scanned
  dangerous,   ///< runs code, accesses files, or gives access to functions that do
};

/// Returns the name of the risk: "safe", "suspicious", "dangerous".
TENFOLD_API std::string to_string(ScanRisk risk);

/// A global that a pickle names, or content that cannot be read or is not scanned.
struct ScanFinding {
  std::string global;  ///< "os.system"; or a description: "tar archive, which is not scanned"
  ScanRisk risk = ScanRisk::suspicious;  ///< the risk of unpickling the global
  std::string where;  ///< its first occurrence: "record \"m/data.pkl\" at byte 17"
};

/// The result of scan().
struct TENFOLD_API ScanReport {
  /// The findings in the order of the scan; a global has one for each pickle that names it. If
  /// there are more than a million findings, the last one represents the rest, and has their
  /// greatest risk.
  std::vector<ScanFinding> findings;
  std::uint64_t num_pickles = 0;  ///< number of pickles in the file or folder
  /// True if all findings are safe, also for a file without findings.
  bool safe() const noexcept;
};

/// Lists every global named by the pickles in a file. The following files are scanned:
///
/// - files of torch.save, of any version
/// - pickles
/// - zip archives with pickles or nested archives, such as .npz, even if other bytes precede the
///   archive
/// - .npy files of objects
/// - files of torch.distributed.checkpoint; in a folder with the checkpoint's .metadata, `where`
///   contains the key
///
/// Nothing is imported, called or executed. A global that torch.load, pickle.load or numpy.load
/// with allow_pickle would import is reported as safe only if it is known to be safe, whatever the
/// file's name. A pickle that cannot be read to its end is a suspicious finding.
///
/// Content that is not scanned is also a suspicious finding: archives other than zip, files in
/// common compression formats, trailing bytes after a pickle, and zip records or archives that
/// exceed a limit of size or depth. In a `.memmap` file or a storage of torch.save, such content is
/// mostly not reported, because numbers can start with a magic number by chance.
///
/// In a folder, all files at any depth are scanned, and `where` begins with the file's path in the
/// folder. Links to folders are not followed; those that lead out of the scanned folder are
/// suspicious findings. Throws Error(file_not_found), Error(io), and Error(corrupt) or
/// Error(unsupported) for an archive that cannot be read. In a folder, a file or sub-folder that
/// cannot be read is a suspicious finding instead.
TENFOLD_API ScanReport scan(const std::filesystem::path& path);

}  // namespace tenfold
