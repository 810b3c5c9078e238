#include "base/hash/xxh3_kernel_impl.hpp"

namespace tenfold::base {

extern const Xxh3Kernel kXxh3Avx2 = {kernel_hash, kernel_update, kernel_digest};

}  // namespace tenfold::base
