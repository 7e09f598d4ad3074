/* owners.h - who owns which elements of a tensor, at each level: a lane inside each site, and a site in each lane.
 *
 * A site is a host; if racks are known, a rack. Elements are dealt out in stripes to the lanes in turn, and within a
 * lane to the sites in turn, from those that the tensor's key decides. So every slice of a tensor has work for all
 * owners, and tensors of a model do not all begin at the same one. A lane is one rank of every site. There are as many
 * lanes as the largest host has ranks; on a host with fewer, a rank has several neighbouring lanes. With racks, whose
 * hosts all have the same number of ranks, each of these lanes is one for each host of the largest rack; in a rack with
 * fewer hosts, a rank has several neighbouring ones. Without sites (flat) there is one lane, and every rank is a site
 * of its own.
 *
 * Nothing here depends on how a schedule cuts or fuses, so state that belongs to an owner stays where it is when
 * buckets change. Pure. */
#ifndef GW_ARCH_OWNERS_H
#define GW_ARCH_OWNERS_H

#include "base/stripes.h"
#include "plan/plan.h"

/* The ranks of a job as lanes and sites. */
typedef struct gw_lanes {
    int lanes, hosts; /* hosts: of sites */
    int host;         /* of this rank: its site */
    int first, last;  /* this rank has lanes first .. last - 1 */
    int per_host;     /* with racks: neighbouring lanes that belong to one rank of each host; else 1 */
} gw_lanes;

/* flat: one lane of all ranks. Racks need hosts of one size. */
gw_lanes gw_lanes_of(const gw_topology *topology, int rank, bool flat);
/* The lanes [*first, *last) of a local rank on a host with `locals` ranks; or of a host in its rack. */
void gw_lanes_of_local(int lanes, int locals, int local, int *first, int *last);
/* The rank of a lane at a site. */
int gw_lane_rank(const gw_lanes *lanes, const gw_topology *topology, int lane, int host);

/* The owners of one tensor. */
typedef struct gw_owners {
    uint64_t count, stripe; /* elements */
    int lanes, hosts;
    int lane_turn; /* the lane of the first stripe */
    int turn;      /* the host that owns it */
    bool whole;    /* the tensor is never cut: one owner has all of it */
} gw_owners;

/* block: the tensor is cut only at multiples of this many elements; 0: never. */
gw_owners gw_owners_of(const gw_lanes *lanes, uint64_t key, uint64_t count, uint32_t block);
/* The elements of lanes [first, last), on all hosts. */
gw_stripes gw_owners_in_lanes(const gw_owners *owners, int first, int last);
/* Those of them that this host owns. */
gw_stripes gw_owners_at_host(const gw_owners *owners, int first, int last, int host);

#endif
