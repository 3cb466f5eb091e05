package flaremq.driver;

import org.apache.rocketmq.store.MessageExtBrokerInner;

/** A message on its way into the store, under one name for both versions: the class behind it moved between them. */
final class Inner extends MessageExtBrokerInner {
    private static final long serialVersionUID = 1L;
}
