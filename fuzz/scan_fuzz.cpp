// Arbitrary bytes as a file that is scanned for the globals of pickles. The scan throws an Error,
// or returns a report. If the file looks like a pickle, the report must contain every global that
// the pickle reader finds.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>
#include <tenfold/scan.hpp>

#include "codecs/pickle/imports.hpp"
#include "codecs/pickle/pickle.hpp"
#include "fuzz/scratch.hpp"

namespace {

namespace fs = std::filesystem;
using namespace tenfold;

constexpr const char* kNumbers = "x.memmap";

/// Returns the path to which the input is written. `name` determines the type of the file: a pickle
/// ("x.pkl") or numbers (kNumbers). For another name ("x"), the first bytes determine the type.
fs::path scratch(const char* name) {
  static const fuzz::ScratchFolder folder;
  return folder.path() / name;
}

bool names(const ScanReport& report, const std::string& global) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [&](const ScanFinding& found) { return found.global == global; });
}

/// Checks that the report contains every global of the pickle at the start of the file, even if the
/// file appears to have another type.
void require_all_named(std::string_view bytes, const ScanReport& report) {
  std::string problem;
  const codecs::PickleGraph graph = codecs::read_pickle_prefix(bytes, "input", problem);
  for (const codecs::PickleNode node : graph.nodes) {
    if (node.kind != codecs::PickleKind::global) continue;
    if (!names(report, std::string(node.text) + "." + std::string(node.name))) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"x", "x.pkl", kNumbers}) {
    const fs::path path = scratch(name);
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    try {
      const ScanReport report = scan(path);
      for (const ScanFinding& found : report.findings) {
        if (found.global.empty() || found.where.empty()) std::abort();
      }
      const bool is_pickle =
          bytes.size() > 2 && bytes[0] == '\x80' && static_cast<unsigned char>(bytes[1]) <= 5;
      const bool imports = !bytes.starts_with("PK") && codecs::may_import(bytes);
      if (imports || (is_pickle && name != kNumbers)) require_all_named(bytes, report);
      if (imports && report.findings.empty()) std::abort();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported)
        std::abort();
    }
  }
  return 0;
}
