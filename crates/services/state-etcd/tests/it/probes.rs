//! The HTTP paths that kubeadm and k3s probe, as etcd answers them.

use crate::client::get;
use crate::support::serve;

#[test]
fn probes_answer_as_etcd_does() {
    let server = serve(None);
    let told = |path| get(server.address(), path);
    let ok = |text: &str| (200, text.to_owned());
    assert_eq!(told("/health"), ok(r#"{"health":"true","reason":""}"#));
    assert_eq!(told("/health?serializable=true&exclude=NOSPACE").0, 200);
    assert_eq!(told("/livez"), ok("ok\n"));
    assert_eq!(told("/livez/serializable_read?verbose"), ok("[+]serializable_read ok\nok\n"));
    let all = "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n\
               [+]non_learner ok\nok\n";
    assert_eq!(told("/readyz?verbose"), ok(all));
    let rest = "[+]serializable_read ok\n[+]linearizable_read ok\nok\n";
    assert_eq!(told("/readyz?verbose&exclude=data_corruption&exclude=non_learner"), ok(rest));
    let versions = r#"{"etcdserver":"3.6.16","etcdcluster":"3.6.0","storage":"3.6.0"}"#;
    assert_eq!(told("/version"), ok(versions));
    assert_eq!(told("/v3/kv/range"), (404, "404 page not found\n".to_owned()));
    let (status, metrics) = told("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("\netcd_server_has_leader 1\n"), "{metrics}");
    assert!(metrics.contains("\netcd_debugging_mvcc_current_revision 1\n"), "{metrics}");
}
