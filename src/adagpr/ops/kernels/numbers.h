/* Included once for each type of number: REAL is the type, NAME(x) the name of x for it.

   Matrices are dense, by rows, `width` columns wide. Their rows may be several blocks of as many rows each, one above
   the other, with weights of their own. */

typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

#define VEC NAME(vec)
#define SIZE ((int64_t)sizeof(REAL))
#define LANES (VECTOR_BYTES / SIZE)
#define GET(pointer) (*(const VEC *)(pointer))
#define PUT(pointer) (*(VEC *)(pointer))

#include "arguments.h"
#include "maps.h"
#include "norms.h"
#include "hops.h"
#include "stack.h"
#include "signed.h"

#undef VEC
#undef SIZE
#undef LANES
#undef GET
#undef PUT
