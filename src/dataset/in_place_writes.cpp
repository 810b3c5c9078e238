#include "dataset/in_place_writes.hpp"

#include <utility>

#include "formats/folder/checksums.hpp"

namespace tenfold {

using namespace detail;

InPlaceWrites::InPlaceWrites(os::Directory folder, os::Path path)
    : folder_(std::move(folder)), path_(std::move(path)) {}

void InPlaceWrites::begin() {
  const std::lock_guard lock(mutex_);
  if (have_begun_) return;
  if (folder_.valid()) formats::folder::drop_leaf_checksums(folder_, path_);
  have_begun_ = true;
}

}  // namespace tenfold
