#pragma once

#include <string_view>

#include <tenfold/error.hpp>
#include <tenfold/leaf.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/batch.hpp"

// Checks of entries that most formats use. `refuse` returns an error that names the entry, usually
// an Error(unsupported); a check that fails adds the reason and throws this error.

namespace tenfold::detail::formats {

/// Returns an Error(unsupported) that names the key of an entry.
inline Error refuse_key(std::string_view key) {
  return base::unsupported().part("key ", base::quote(key));
}

template <class Refuse>
void require_utf8(std::string_view key, const Refuse& refuse) {
  if (base::is_utf8(key)) return;
  throw refuse()
      .problem("a key that is not UTF-8 cannot be stored")
      .expected("UTF-8")
      .found("other bytes");
}

template <class Refuse>
void require_dense(const Leaf& leaf, const Refuse& refuse) {
  if (!leaf.is_nested()) return;
  throw refuse()
      .problem("a nested tensor cannot be stored")
      .expected("a dense tensor")
      .found("a nested tensor of ", leaf.shape().empty() ? 0 : leaf.shape()[0], " components")
      .remedy("save in the format \"memmap\", which supports it");
}

/// Throws unless the shape of a tensor starts with the batch size of its node.
template <class Refuse>
void require_batch(const Shape& shape, const Shape& batch, const Refuse& refuse) {
  if (starts_with(shape, batch)) return;
  throw refuse()
      .problem("the shape does not fit")
      .expected("it to start with the batch_size ", base::list_text(batch))
      .found(base::list_text(shape));
}

}  // namespace tenfold::detail::formats
