#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/export.hpp>

namespace tenfold {

/// What a program that unpickles may expect of a global (a class or function that a pickle names).
enum class ScanRisk : std::uint8_t {
  safe,        ///< one that checkpoints of tensors are made of
  suspicious,  ///< one that is not known, or a pickle that cannot be read to its end
  dangerous,   ///< runs code, reads or writes files, or reaches what does
};

/// "safe", "suspicious", "dangerous".
TENFOLD_API std::string_view name(ScanRisk risk) noexcept;

struct ScanFinding {
  std::string global;  ///< "os.system"; of what is no global, in words: "pickle that is cut"
  ScanRisk risk = ScanRisk::suspicious;
  std::string where;  ///< "record \"m/data.pkl\" at byte 17": the first place
};

struct TENFOLD_API ScanReport {
  std::vector<ScanFinding> findings;  ///< one a global and pickle, in order
  std::uint64_t num_pickles = 0;
  /// True if everything named is safe, also of a file without pickles.
  bool safe() const noexcept;
};

/// Lists every global that the pickles in a file name: a file of torch.save (of any age), a pickle,
/// a zip archive with pickles or archives in it (.npz too), a .npy file of objects, a file of
/// torch.distributed.checkpoint (`where` tells the key if its .metadata is in the folder that is
/// scanned). Nothing is imported, called or executed. What torch.load, pickle.load or numpy.load
/// with allow_pickle would come to import is never called safe, whatever the file is named: where a
/// pickle cannot be read to its end, that is a suspicious finding. What is not looked into is a
/// suspicious finding: archives that are no zip, compressed files, bytes after a pickle that are
/// none. Of a folder, all files in it are scanned, those of folders in it too, and `where` begins
/// with the file's name. Throws Error: file_not_found, io, corrupt (an archive that cannot be
/// read). In a folder, a file or sub-folder that cannot be read is a suspicious finding instead.
TENFOLD_API ScanReport scan(const std::filesystem::path& path);

}  // namespace tenfold
