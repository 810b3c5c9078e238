#pragma once

#include <cstddef>
#include <vector>

#include "io/copy.hpp"

namespace tenfold {

/// Positions in a list of copies.
using Wave = std::vector<std::size_t>;

/// In which order copies have to write so that the result is that of one after the other, as they
/// are listed: those of one wave write bytes that no other of it writes, and each wave waits for
/// the one before. Of several into the very same elements (tied parameters) only the last is
/// there. Copies without elements are in no wave. Mostly there is one wave, of all.
std::vector<Wave> write_order(const std::vector<LeafCopy>& copies);

}  // namespace tenfold
